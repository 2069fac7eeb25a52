"""Small programs in which a hook did something that its author did not expect, each with the right cause.

Each re-creates the situation of a public thread, in code of its own. They were written before `explain_hook` was.
"""

import copy
import dataclasses
import functools
import io
import threading
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from course_utils.hooks.explain import explain_hook

SNIPPETS = []  # (cause, thread, function)
X = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def snippet(cause, thread):
    """Declare a function that returns the story of a hook, with the right cause and the thread that asks about it."""

    def declare(tell):
        SNIPPETS.append((cause, thread, tell))
        return tell

    return declare


def spy(*seen):
    """A hook of any kind that only watches."""


class Net(nn.Module):
    """Two linear layers with a ReLU between them."""

    def __init__(self, inplace=False):
        super().__init__()
        self.fc1 = nn.Linear(3, 4)
        self.relu = nn.ReLU(inplace)
        self.fc2 = nn.Linear(4, 1)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


# --- Nobody called the module, or not in the way that runs hooks ---


@snippet("forward called directly", "pytorch/pytorch#117925")
def model_dot_forward():
    model = Net()
    model.register_full_backward_hook(spy)
    with explain_hook(model, spy) as story:
        model.forward(X).sum().backward()
    return story


@snippet("forward called directly", "pytorch/executorch#16456")
def block_calls_forward_of_its_attention():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.Linear(3, 3)

        def forward(self, x):
            return x + self.attention.forward(x)

    model = nn.Sequential(Block(), Block())
    with explain_hook(model, spy) as story:
        model[1].attention.register_forward_pre_hook(spy)
        model(X)
    return story


@snippet("forward called directly", "mistralai/mistral-inference#246")
def wrapper_calls_forward():
    class Generator:
        def __init__(self, net):
            self.net = net

        def generate(self, x):
            for _ in range(2):
                x = self.net.forward(x)
            return x

    net = nn.Linear(3, 3)
    with explain_hook(net, spy) as story, torch.no_grad():
        net.register_forward_hook(spy)
        Generator(net).generate(X)
    return story


@snippet("never called", "meta-pytorch/captum#1082")
def functional_relu_in_place_of_the_module():
    class Functional(Net):
        def forward(self, x):
            return self.fc2(F.relu(self.fc1(x)))

    model = Functional()
    with explain_hook(model, spy) as story:
        model.relu.register_full_backward_hook(spy)
        model(X).sum().backward()
    return story


@snippet("never called", "pytorch/pytorch#102374")
def hook_on_a_list_of_layers():
    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    model = Stack()
    model.layers.register_forward_hook(spy)
    with explain_hook(model, spy) as story:
        model(X)
    return story


@snippet("never called", "jacobgil/pytorch-grad-cam#84")
def attention_dropout_under_a_fused_kernel():
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=4).eval()
    with explain_hook(model, spy) as story:
        model.blocks[0].attn.attn_drop.register_forward_hook(spy)
        model(torch.zeros(1, 3, 32, 32))
    return story


@snippet("never called", "pytorch/vision auxiliary heads in evaluation mode")
def auxiliary_head_in_evaluation_mode():
    class TwoHeads(Net):
        def __init__(self):
            super().__init__()
            self.auxiliary = nn.Linear(4, 1)

        def forward(self, x):
            hidden = self.relu(self.fc1(x))
            return (self.fc2(hidden), self.auxiliary(hidden)) if self.training else self.fc2(hidden)

    model = TwoHeads().eval()
    with explain_hook(model, spy) as story:
        handle = model.auxiliary.register_forward_hook(spy)
        model(X)
        handle.remove()
    return story


@snippet("never called", "pytorch/pytorch#89176")
def step_was_forgotten():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with explain_hook(optimizer, spy) as story:
        optimizer.register_step_post_hook(spy)
        optimizer.zero_grad()
        model(X).sum().backward()
    return story


@snippet("never called", "huggingface/pytorch-image-models forward_features")
def features_without_the_model_itself():
    import timm

    model = timm.create_model("resnet10t", num_classes=4).eval()
    with explain_hook(model, spy) as story, torch.no_grad():
        model.register_forward_hook(spy)
        model.forward_features(torch.zeros(1, 3, 32, 32))
    return story


@snippet("weights used without a call", "pytorch/pytorch#78109")
def output_projection_of_multihead_attention():
    model = nn.MultiheadAttention(4, 2)
    seen = {}

    def count(name, module, args):
        seen[name] = seen.get(name, 0) + 1

    hook = functools.partial(count, "out_proj")
    with explain_hook(model, hook) as story:
        model.out_proj.register_forward_pre_hook(hook)
        x = torch.ones(3, 1, 4)
        model(x, x, x)
    return story


@snippet("weights used without a call", "pytorch/pytorch#69353")
def decoder_shares_the_weight_of_the_embedding():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 3)
            self.decoder = nn.Linear(3, 5, bias=False)

        def forward(self, tokens):
            return F.linear(self.embed(tokens), self.decoder.weight)

    model = Tied()
    with explain_hook(model, spy) as story:
        model.decoder.register_full_backward_hook(spy)
        model(torch.tensor([1, 2])).sum().backward()
    return story


# --- Something else ran ---


@snippet("compiled", "pytorch/pytorch#117758")
def hook_after_the_first_compiled_call():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    fast = torch.compile(model, backend="eager")
    fast(X)
    with explain_hook(model, spy) as story:
        model[0].register_forward_hook(spy)
        fast(X)
    return story


@snippet("compiled", "pytorch/pytorch#115750")
def backward_hook_after_a_compiled_function():
    layer = nn.Linear(3, 3, bias=False)

    @torch.compile(backend="aot_eager")
    def run(x):
        return layer(x)

    run(X.clone().requires_grad_())
    with explain_hook(layer, spy) as story:
        layer.register_full_backward_hook(spy)
        run(X.clone().requires_grad_()).sum().backward()
    return story


@snippet("compiled", "pytorch/pytorch#96722")
def hook_that_the_compiler_built_in():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    kept = []

    def keep(module, args, output):
        kept.append(output)

    fast = torch.compile(model, backend="eager")
    with explain_hook(model, keep) as story:
        model[1].register_forward_hook(keep)
        fast(X)
    return story


@snippet("scripted, traced or exported", "pytorch/pytorch#29037")
def traced_before_the_hook():
    model = Net()
    traced = torch.jit.trace(model, X)
    with explain_hook(model, spy) as story:
        model.fc1.register_forward_hook(spy)
        traced(X)
    return story


@snippet("scripted, traced or exported", "pytorch/pytorch#34329")
def scripted_model():
    model = Net()
    scripted = torch.jit.script(model)
    model.relu.register_forward_hook(spy)
    with explain_hook(model, spy) as story:
        scripted(X)
    return story


@snippet("scripted, traced or exported", "pytorch/pytorch#86818")
def exported_model():
    model = Net()
    exported = torch.export.export(model, (X,)).module()
    with explain_hook(model, spy) as story:
        model.fc2.register_forward_hook(spy)
        exported(X)
    return story


@snippet("scripted, traced or exported", "pytorch/vision feature extraction")
def feature_extractor_made_by_tracing():
    from torchvision.models import resnet18
    from torchvision.models.feature_extraction import create_feature_extractor

    model = resnet18(weights=None).eval()
    extractor = create_feature_extractor(model, ["layer1"])
    with explain_hook(model, spy) as story, torch.no_grad():
        model.layer1.register_forward_hook(spy)
        extractor(torch.zeros(1, 3, 32, 32))
    return story


@snippet("another instance", "pytorch/pytorch#82070")
def moving_average_is_a_copy():
    model = Net()
    average = torch.optim.swa_utils.AveragedModel(model)
    with explain_hook(model, spy) as story:
        model.fc1.register_forward_hook(spy)
        average(X)
    return story


@snippet("another instance", "isl-org/MiDaS#251")
def hook_fires_on_the_copy():
    model = Net()
    model.fc1.register_forward_hook(spy)
    twin = copy.deepcopy(model)
    with explain_hook(model, spy) as story:
        twin(X)
    return story


@snippet("another instance", "transfer learning: the last layer is exchanged")
def layer_replaced_after_the_registration():
    model = Net()
    with explain_hook(model, spy) as story:
        model.fc2.register_forward_hook(spy)
        model.fc2 = nn.Linear(4, 10)
        model(X)
    return story


@snippet("another instance", "pytorch/pytorch#1148")
def model_loaded_again():
    model = Net()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    model.relu.register_forward_hook(spy)
    loaded = Net()
    loaded.load_state_dict(torch.load(file))
    with explain_hook(loaded, spy) as story:
        loaded(X)
    return story


@snippet("another instance", "a parameter is replaced, as by pruning")
def parameter_replaced_after_the_registration():
    model = Net()
    with explain_hook(model, spy) as story:
        model.fc1.weight.register_hook(spy)
        model.fc1.weight = nn.Parameter(torch.ones(4, 3))
        model(X).sum().backward()
    return story


# --- Registered wrongly, too late, or no longer ---


@snippet("never registered", "fastai forum: the hook was assigned")
def hook_assigned_and_not_registered():
    model = Net()
    with explain_hook(model, spy) as story:
        model.fc1.forward_hook = spy
        model(X)
    return story


@snippet("never registered", "a loop registers the hook by a name that matches nothing")
def no_name_matched():
    model = Net()
    with explain_hook(model, spy) as story:
        for name, module in model.named_modules():
            if "attn" in name:
                module.register_forward_hook(spy)
        model(X)
    return story


@snippet("registered too late", "pytorch forum: activations stay empty")
def forward_hook_after_the_call():
    model = Net()
    with explain_hook(model, spy) as story:
        model(X)
        model.fc1.register_forward_hook(spy)
    return story


@snippet("registered too late", "pytorch/pytorch#38951")
def backward_hook_between_forward_and_backward():
    model = Net()
    with explain_hook(model, spy) as story:
        loss = model(X).sum()
        model.fc2.register_full_backward_hook(spy)
        loss.backward()
    return story


@snippet("registered too late", "pytorch forum: hook on a tensor after backward")
def tensor_hook_after_backward():
    x = X.clone().requires_grad_()
    with explain_hook(x, spy) as story:
        (x * 2).sum().backward()
        x.register_hook(spy)
    return story


@snippet("removed", "numenta and others: clean-up comes too early")
def handle_removed_before_the_call():
    model = Net()
    handle = model.fc1.register_forward_hook(spy)
    with explain_hook(model, spy) as story:
        handle.remove()
        model(X)
    return story


@snippet("removed", "the handle is a context manager, and backward comes after it")
def with_statement_ends_before_backward():
    model = Net()
    with explain_hook(model, spy) as story:
        with model.fc1.weight.register_hook(spy):
            loss = model(X).sum()
        loss.backward()
    return story


@snippet("removed", "TransformerLensOrg/TransformerLens#297")
def tables_were_cleared():
    model = Net()
    model.fc1.register_forward_hook(spy)
    with explain_hook(model, spy) as story:
        for module in model.modules():
            module._forward_hooks.clear()
        model(X)
    return story


# --- An exception, or no gradient that comes by ---


@snippet("stopped by an exception", "pytorch/pytorch always_call")
def forward_raises_before_its_hook():
    model = Net()
    with explain_hook(model, spy) as story, suppress(RuntimeError):
        model.fc1.register_forward_hook(spy)
        model(torch.ones(2, 5))
    return story


@snippet("stopped by an exception", "several hooks on one layer")
def an_earlier_hook_raises():
    def broken(module, args, output):
        raise KeyError("layer1")

    model = Net()
    with suppress(KeyError), explain_hook(model, spy) as story:
        model.fc1.register_forward_hook(broken)
        model.fc1.register_forward_hook(spy)
        model(X)
    return story


@snippet("no backward pass", "jacobgil/pytorch-grad-cam#80")
def backward_was_forgotten():
    model = Net()
    with explain_hook(model, spy) as story:
        model.fc1.register_full_backward_hook(spy)
        loss = model(X).sum()
        loss.item()
    return story


@snippet("gradients switched off", "frgfm/torch-cam#217")
def backward_hook_under_no_grad():
    model = Net()
    with explain_hook(model, spy) as story, suppress(RuntimeError):
        model.fc1.register_full_backward_hook(spy)
        with torch.no_grad():
            output = model(X)
        output.sum().backward()
    return story


@snippet("gradients switched off", "Comfy-Org/ComfyUI#4246")
def backward_hook_under_inference_mode():
    model = Net().eval()
    model.relu.register_full_backward_hook(spy)
    with torch.inference_mode(), explain_hook(model, spy) as story:
        model(X)
    return story


@snippet("gradients switched off", "a backbone that runs under no_grad")
def backbone_under_no_grad():
    backbone, head = nn.Linear(3, 4), nn.Linear(4, 1)
    model = nn.ModuleDict({"backbone": backbone, "head": head})
    with explain_hook(model, spy) as story:
        backbone.register_full_backward_hook(spy)
        with torch.no_grad():
            features = backbone(X)
        head(features).sum().backward()
    return story


@snippet("nothing requires a gradient", "jacobgil/pytorch-grad-cam#187")
def frozen_model():
    model = Net().requires_grad_(False)
    with explain_hook(model, spy) as story, suppress(RuntimeError):
        model.relu.register_full_backward_hook(spy)
        model(X).sum().backward()
    return story


@snippet("nothing requires a gradient", "yizt/Grad-CAM.pytorch#15")
def frozen_backbone_with_a_trained_head():
    model = Net()
    model.fc1.requires_grad_(False)
    with explain_hook(model, spy) as story:
        model.fc1.register_full_backward_hook(spy)
        model(X).sum().backward()
    return story


@snippet("not on the path", "pytorch forum: detach in the middle")
def detached_in_the_middle():
    class Detached(Net):
        def forward(self, x):
            return self.fc2(self.relu(self.fc1(x)).detach())

    model = Detached()
    with explain_hook(model, spy) as story:
        model.fc1.register_full_backward_hook(spy)
        model(X).sum().backward()
    return story


@snippet("not on the path", "pytorch forum: a slice of the output")
def hook_on_a_slice_that_nobody_uses():
    output = Net()(X)
    first = output[0]
    with explain_hook(first, spy) as story:
        first.register_hook(spy)
        output.sum().backward()
    return story


@snippet("not on the path", "two heads and the loss of one")
def loss_of_the_other_head():
    trunk, left, right = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)
    model = nn.ModuleList([trunk, left, right])
    with explain_hook(model, spy) as story:
        right.register_full_backward_hook(spy)
        hidden = trunk(X)
        right(hidden)
        left(hidden).sum().backward()
    return story


@snippet("passed by", "pytorch/pytorch#35802")
def autograd_grad_stops_at_its_inputs():
    model = Net()
    with explain_hook(model, spy) as story:
        model.fc1.weight.register_hook(spy)
        hidden = model.fc1(X)
        torch.autograd.grad(model.fc2(model.relu(hidden)).sum(), hidden)
    return story


@snippet("passed by", "pytorch/pytorch#92331")
def backward_with_inputs():
    model = Net()
    with explain_hook(model, spy) as story:
        model.fc2.weight.register_hook(spy)
        model(X).sum().backward(inputs=[model.fc1.weight])
    return story


@snippet("passed by", "pytorch/pytorch#107063")
def nothing_is_accumulated_by_grad():
    model = Net()
    with explain_hook(model, spy) as story:
        model.fc1.weight.register_post_accumulate_grad_hook(spy)
        torch.autograd.grad(model(X).sum(), model.fc1.weight)
    return story


@snippet("output is not a tensor", "pytorch/pytorch#87540")
def module_returns_a_dict():
    class Named(Net):
        def forward(self, x):
            return {"scores": super().forward(x)}

    model = Named()
    with explain_hook(model, spy) as story:
        model.register_full_backward_hook(spy)
        model(X)["scores"].sum().backward()
    return story


@snippet("output is not a tensor", "pytorch/pytorch#87547")
def module_returns_a_dataclass():
    @dataclasses.dataclass
    class Output:
        logits: torch.Tensor

    class Wrapped(Net):
        def forward(self, x):
            return Output(super().forward(x))

    model = Wrapped()
    model.register_full_backward_pre_hook(spy)
    with explain_hook(model, spy) as story:
        model(X).logits.sum().backward()
    return story


@snippet("function transform", "pytorch/functorch#1124")
def backward_hook_under_vmap():
    model = Net()
    with explain_hook(model, spy) as story, suppress(RuntimeError):
        model.fc1.register_full_backward_hook(spy)
        torch.func.vmap(model)(X).sum().backward()
    return story


@snippet("function transform", "pytorch/functorch#1106")
def tensor_hook_under_func_grad():
    model = Net()
    parameters = dict(model.named_parameters())
    with explain_hook(model, spy) as story:
        model.fc1.weight.register_hook(spy)
        torch.func.grad(lambda values: torch.func.functional_call(model, values, X).sum())(parameters)
    return story


# --- It ran, and not as its author thought ---


@snippet("recomputed by checkpointing", "pytorch/pytorch#81296")
def checkpoint_runs_forward_twice():
    model = Net()
    with explain_hook(model, spy) as story:
        model.fc1.register_forward_hook(spy)
        checkpoint(model, X, use_reentrant=False).sum().backward()
    return story


@snippet("recomputed by checkpointing", "huggingface/peft#2826")
def reentrant_checkpoint_runs_forward_twice():
    model = nn.Sequential(Net(), nn.Linear(1, 1))
    with explain_hook(model, spy) as story:
        model[0].relu.register_forward_pre_hook(spy)
        hidden = checkpoint(model[0], X.clone().requires_grad_(), use_reentrant=True)
        model[1](hidden).sum().backward()
    return story


@snippet("called several times", "openai/CLIP#239")
def shared_relu():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2, self.relu = nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU()

        def forward(self, x):
            return self.relu(self.fc2(self.relu(self.fc1(x))))

    record, model = {}, Shared()

    def save(module, args, output):
        record["relu"] = output.detach()

    with explain_hook(model, save) as story:
        model.relu.register_forward_hook(save)
        model(X)
    return story


@snippet("called several times", "meta-pytorch/captum#578")
def cell_in_a_loop():
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.RNNCell(3, 3)

        def forward(self, x):
            state = torch.zeros(2, 3)
            for _ in range(4):
                state = self.cell(x, state)
            return state

    model = Steps()
    model.cell.register_full_backward_hook(spy)
    with explain_hook(model, spy) as story:
        model(X.clone().requires_grad_()).sum().backward()
    return story


@snippet("several backward passes", "pytorch/pytorch#88312")
def double_backward():
    x = X.clone().requires_grad_()
    with explain_hook(x, spy) as story:
        x.register_hook(spy)
        (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        slope.sum().backward()
    return story


@snippet("several backward passes", "two losses and retain_graph")
def two_losses_one_after_the_other():
    model = Net()
    with explain_hook(model, spy) as story:
        model.fc1.register_full_backward_hook(spy)
        output = model(X.clone().requires_grad_())
        output.sum().backward(retain_graph=True)
        output.square().sum().backward()
    return story


@snippet("registered several times", "pytorch/opacus#176")
def cell_run_three_times():
    model = Net()
    with explain_hook(model, spy) as story:
        for _ in range(3):
            model.fc1.register_forward_hook(spy)
        model(X)
    return story


@snippet("registered several times", "pytorch/pytorch#82528")
def forward_registers_at_every_call():
    class Growing(Net):
        def forward(self, x):
            self.fc1.register_forward_hook(spy)
            return super().forward(x)

    model = Growing()
    with explain_hook(model, spy) as story:
        for _ in range(2):
            model(X)
    return story


@snippet("changed in place", "pytorch/pytorch#61519")
def full_backward_hook_and_an_inplace_relu():
    model = Net(inplace=True)
    with suppress(RuntimeError), explain_hook(model, spy) as story:
        model.fc1.register_full_backward_hook(spy)
        model(X).sum().backward()
    return story


@snippet("changed in place", "pytorch/pytorch#79767")
def tensor_changed_after_its_hook():
    x = X.clone().requires_grad_()
    with explain_hook(y := x * 1, spy) as story:
        y.register_hook(spy)
        y.mul_(2)
        (y + 1).sum().backward()
    return story


@snippet("changed in place", "meta-pytorch/captum#199")
def record_overwritten_by_the_next_layer():
    record, model = {}, Net(inplace=True)

    def save(module, args, output):
        record["fc1"] = output

    with explain_hook(model, save) as story:
        model.fc1.register_forward_hook(save)
        model(X)
    return story


@snippet("legacy kind", "idiap/fullgrad-saliency#10")
def backward_hook_of_the_old_kind():
    model = Net()
    with explain_hook(model, spy) as story:
        model.register_backward_hook(spy)
        model(X.clone().requires_grad_()).sum().backward()
    return story


@snippet("no input requires a gradient", "pytorch/pytorch#56380")
def first_layer_sees_no_grad_input():
    model = Net()
    with explain_hook(model, spy) as story:
        model.fc1.register_full_backward_hook(spy)
        model(X).sum().backward()
    return story


@snippet("keyword arguments", "huggingface/transformers#29247")
def inputs_by_keyword():
    class Named(Net):
        def forward(self, pixels=None):
            return super().forward(pixels)

    model = Named()
    with explain_hook(model, spy) as story:
        model.register_forward_pre_hook(spy)
        model(pixels=X)
    return story


@snippet("return value refused", "huggingface/picotron#39")
def gradient_returned_from_a_hook_after_accumulation():
    def halve(parameter):
        return parameter.grad / 2

    model = Net()
    with suppress(RuntimeError), explain_hook(model, halve) as story:
        model.fc1.weight.register_post_accumulate_grad_hook(halve)
        model(X).sum().backward()
    return story


@snippet("return value ignored", "pytorch/torchtitan#851")
def value_returned_after_a_step():
    def count_step(optimizer, args, kwargs):
        return 0.5

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with explain_hook(optimizer, count_step) as story:
        optimizer.register_step_post_hook(count_step)
        model(X).sum().backward()
        optimizer.step()
    return story


@snippet("return value refused", "pytorch forum: wrong size")
def gradient_of_another_shape():
    def first_row(gradient):
        return gradient[0]

    model = Net()
    with suppress(RuntimeError), explain_hook(model, first_row) as story:
        model.fc1.weight.register_hook(first_row)
        model(X).sum().backward()
    return story


@snippet("return value refused", "utkuozbulak/pytorch-cnn-visualizations#18")
def too_many_gradients():
    def clamp(module, grad_input, grad_output):
        return (*(grad.clamp(min=0) for grad in grad_input), None)

    model = Net()
    with explain_hook(model, clamp) as story, suppress(RuntimeError):
        model.relu.register_full_backward_hook(clamp)
        model(X).sum().backward()
    return story


@snippet("the hook raised", "fastai/fastai2#425")
def hook_takes_too_few_arguments():
    def three(module, args, output):
        return None

    model = Net()
    with suppress(TypeError), explain_hook(model, three) as story:
        model.fc1.register_forward_hook(three, with_kwargs=True)
        model(X)
    return story


@snippet("the hook raised", "a tuple is treated as a tensor")
def tuple_taken_for_a_tensor():
    def shape_of(module, grad_input, grad_output):
        return grad_output.shape

    model = Net()
    with suppress(AttributeError), explain_hook(model, shape_of) as story:
        model.fc2.register_full_backward_hook(shape_of)
        model(X).sum().backward()
    return story


@snippet("another hook came first", "two libraries hook one layer")
def output_replaced_by_an_earlier_hook():
    def double(module, args, output):
        return 2 * output

    model = Net()
    model.fc1.register_forward_hook(double)
    with explain_hook(model, spy) as story:
        model.fc1.register_forward_hook(spy)
        model(X)
    return story


@snippet("scaled gradients", "PyTorch Lightning, issue 4151")
def gradients_of_a_scaled_loss():
    model = Net()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with explain_hook(model, spy) as story:
        model.fc2.weight.register_hook(spy)
        scaler.scale(model(X).sum()).backward()
    return story


@snippet("called after an exception", "pytorch/pytorch always_call")
def always_called_hook_without_an_output():
    model = Net()
    with explain_hook(model, spy) as story, suppress(RuntimeError):
        model.fc1.register_forward_hook(spy, always_call=True)
        model(torch.ones(2, 5))
    return story


# --- Nothing is wrong ---


@snippet("it ran", "the plain case")
def plain_forward_hook():
    model = Net()
    with explain_hook(model, spy) as story:
        handle = model.fc1.register_forward_hook(spy)
        model(X)
        handle.remove()
    return story


@snippet("it ran", "three batches, three runs")
def a_training_loop():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with explain_hook(model, spy) as story:
        model.fc2.register_full_backward_hook(spy)
        for _ in range(3):
            optimizer.zero_grad()
            model(X).square().sum().backward()
            optimizer.step()
    return story


@snippet("it ran", "hooks made in a loop, all of one code")
def one_of_many_closures():
    def make(name, record):
        def save(module, args, output):
            record[name] = output.detach()

        return save

    record, model = {}, Net()
    hooks = {name: make(name, record) for name in ("fc1", "relu", "fc2")}
    with explain_hook(model, hooks["relu"]) as story:
        for name, hook in hooks.items():
            model.get_submodule(name).register_forward_hook(hook)
        model(X)
    return story


@snippet("it ran", "an object and its method")
def bound_method():
    class Recorder:
        def __init__(self):
            self.kept = []

        def keep(self, gradient):
            self.kept.append(gradient)
            return gradient * 2

    recorder, model = Recorder(), Net()
    with explain_hook(model, recorder.keep) as story:
        model.fc1.weight.register_hook(recorder.keep)
        model(X).sum().backward()
    return story


@snippet("it ran", "torchvision and a wrapper")
def torchvision_inside_data_parallel():
    from torchvision.models import squeezenet1_1

    model = nn.DataParallel(squeezenet1_1(weights=None).eval())
    with explain_hook(model, spy) as story, torch.no_grad():
        handle = model.module.classifier.register_forward_hook(spy)
        model(torch.zeros(1, 3, 64, 64))
    handle.remove()
    return story


@snippet("it ran", "timm's feature network")
def timm_features_only():
    import timm

    model = timm.create_model("resnet10t", features_only=True).eval()
    with explain_hook(model, spy) as story:
        model.layer1.register_forward_hook(spy)
        model(torch.zeros(1, 3, 32, 32))
    return story


@snippet("it ran", "global hooks")
def hook_on_every_module():
    model = Net()
    with explain_hook(model.fc1, spy) as story:
        handle = nn.modules.module.register_module_forward_hook(spy)
        model(X)
        handle.remove()
    return story


@snippet("it ran", "a hook after the step")
def optimizer_step_hook():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.register_step_pre_hook(spy)
    with explain_hook(optimizer, spy) as story:
        model(X).sum().backward()
        optimizer.step()
    return story


@snippet("it ran", "the handle is given")
def handle_in_place_of_the_function():
    model = Net()
    handle = model.relu.register_forward_hook(lambda module, args, output: output + 1)
    with explain_hook(model, handle) as story:
        model(X)
    return story


@snippet("it ran", "a tensor hook registered inside a forward hook")
def tensor_hook_made_by_a_forward_hook():
    gradients, model = [], Net()

    def keep(gradient):
        gradients.append(gradient)

    def hook_the_output(module, args, output):
        output.register_hook(keep)

    model.relu.register_forward_hook(hook_the_output)
    with explain_hook(model, keep) as story:
        model(X).sum().backward()
    return story


# --- Found while the function was tried on more programs ---


@snippet("it ran", "the name is a default of the function")
def one_of_many_lambdas():
    record, hooks, model = {}, [], Net()
    for name in ("fc1", "relu"):
        hooks.append(lambda module, args, output, name=name: record.update({name: output.shape}))
        model.get_submodule(name).register_forward_hook(hooks[-1])
    with explain_hook(model, hooks[0]) as story:
        model(X)
    assert story.runs == 1
    return story


@snippet("never called", "one layer is asked about, and others of its type ran")
def unused_layer_among_others_of_its_type():
    class Spare(Net):
        def __init__(self):
            super().__init__()
            self.spare = nn.Linear(3, 4)

    model = Spare()
    model.spare.register_forward_hook(spy)
    with explain_hook(model.spare, spy) as story:
        model(X)
    return story


@snippet("it ran", "a parameter with a default that torch fills")
def optional_output():
    def look(module, args, output=None, scale=2):
        return None if output is None else output * scale

    model = Net()
    model.fc1.register_forward_hook(look)
    with explain_hook(model, look) as story:
        model(X)
    assert story.runs == 1
    return story


@snippet("it ran", "the function is asked about, and partials of it are registered")
def partials_of_one_function():
    def save(name, module, args, output):
        record[name] = output.detach()

    record, model = {}, Net()
    with explain_hook(model, save) as story:
        for name in ("fc1", "fc2"):
            model.get_submodule(name).register_forward_hook(functools.partial(save, name))
        model(X)
    assert story.runs == 2
    return story


@snippet("it ran", "a decorated method")
def method_without_gradients():
    class Recorder:
        @torch.no_grad()
        def keep(self, module, args, output):
            self.mean = output.mean()

    recorder, model = Recorder(), Net()
    model.fc1.register_forward_hook(recorder.keep)
    with explain_hook(model, recorder.keep) as story:
        model(X)
    return story


@snippet("it ran", "an object that can be called, in a thread")
def callable_object_in_a_thread():
    class Keep:
        def __call__(self, module, args, output):
            self.output = output

    keep, model = Keep(), Net()
    with explain_hook(model, keep) as story:
        model.relu.register_forward_hook(keep)
        thread = threading.Thread(target=model, args=(X,))
        thread.start()
        thread.join()
    return story


@snippet("it ran", "clipping and a record of norms in a training loop")
def norms_after_accumulation():
    norms, model = [], Net()
    optimizer = torch.optim.Adam(model.parameters())

    def note(parameter):
        norms.append(parameter.grad.norm().item())

    with explain_hook(model, note) as story:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(note)
        for _ in range(3):
            optimizer.zero_grad()
            model(X).square().sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert story.runs == len(norms) == 12
    return story


@snippet("it ran", "an in-place layer after one that is only watched")
def watched_before_an_inplace_relu():
    model = Net(inplace=True)
    with explain_hook(model, spy) as story:
        model.fc1.register_forward_hook(spy)
        model(X)
    return story


@snippet("another hook came first", "two hooks on one gradient")
def gradient_replaced_by_an_earlier_hook():
    model = Net()
    model.fc1.weight.register_hook(lambda gradient: gradient * 2)
    with explain_hook(model, spy) as story:
        model.fc1.weight.register_hook(spy)
        model(X).sum().backward()
    return story


@snippet("changed in place", "pytorch/pytorch#61519, with an operator")
def output_changed_by_an_operator():
    class Plus(Net):
        def forward(self, x):
            hidden = self.fc1(x)
            hidden += 1
            return self.fc2(hidden)

    model = Plus()
    with suppress(RuntimeError), explain_hook(model, spy) as story:
        model.fc1.register_full_backward_hook(spy)
        model(X).sum().backward()
    return story


@snippet("weights used without a call", "pytorch/pytorch#82919")
def fused_encoder_layer_and_a_global_hook():
    layer = nn.TransformerEncoderLayer(4, 2, batch_first=True).eval()
    with torch.no_grad(), explain_hook(layer.linear1, spy) as story:
        handle = nn.modules.module.register_module_forward_hook(spy)
        layer(torch.ones(1, 3, 4))
        handle.remove()
    return story


@snippet("registration refused", "full and legacy hooks on one module")
def two_kinds_of_backward_hooks():
    model = Net()
    model.register_backward_hook(lambda *seen: None)
    with suppress(RuntimeError), explain_hook(model, spy) as story:
        model.register_full_backward_hook(spy)
    return story
