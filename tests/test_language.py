"""The language model: against the plain formula, without its cache, without its package, and against transformers."""

import pytest
import torch
import torch.nn.functional as F
from lesson_pages import LessonPage, why
from panels import control, use

from course_utils import language as room
from course_utils.authoring.source import choose, read_source
from course_utils.exercises.engine import exercises_of, find_prediction
from course_utils.explorers import LogitLens
from course_utils.explorers.logit_lens import read_layers
from course_utils.language import smollm
from course_utils.language.network import LanguageModel, Settings, make_small, write
from course_utils.lessons.figures import draw_places
from course_utils.lessons.two_heads import encode, make_two_head_block
from course_utils.root import CourseError

TOKENS = torch.tensor([[3, 17, 5, 9, 2]])
needs_smollm = pytest.mark.skipif(bool(room.find_missing()), reason="make language-model fetches what this test needs")


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr(room, "PACKAGES", ("no_such_package",))
    return smollm.load_language_model()


def rms(x, norm):
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight


def turn(x, place, base):
    """One head's vector at one place: each pair (i, i + half) as a complex number, turned by its own angle."""
    half = len(x) // 2
    angles = torch.tensor([place / base ** (i / half) for i in range(half)], dtype=x.dtype)
    turned = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag])


def by_hand(model, tokens):
    """The logits of one row, token by token and head by head."""
    settings, body = model.settings, model.model
    x = body.embed_tokens.weight[tokens]
    for layer in body.layers:
        y, attention, results = rms(x, layer.input_layernorm), layer.self_attn, []
        for head in range(settings.heads):
            own = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
            query, key, value = (y @ part.weight.T for part in (attention.q_proj, attention.k_proj, attention.v_proj))
            rows = []
            for at in range(len(tokens)):
                asked = turn(query[at, own], at, settings.base)
                scores = [asked @ turn(key[to], to, settings.base) / attention.head_dim**0.5 for to in range(at + 1)]
                rows.append(torch.stack(scores).softmax(0) @ value[: at + 1])
            results.append(torch.stack(rows))
        x = x + torch.cat(results, -1) @ attention.o_proj.weight.T
        y = rms(x, layer.post_attention_layernorm)
        gate = y @ layer.mlp.gate_proj.weight.T
        x = x + (gate * gate.sigmoid() * (y @ layer.mlp.up_proj.weight.T)) @ layer.mlp.down_proj.weight.T
    return rms(x, body.norm) @ body.embed_tokens.weight.T


@pytest.mark.parametrize("eager", [False, True])
def test_the_network_equals_the_plain_formula(eager):
    model = make_small(4)
    for layer in model.model.layers:
        layer.self_attn.eager = eager
    torch.testing.assert_close(model(TOKENS)[0], by_hand(model, TOKENS[0]), rtol=0, atol=1e-6)


def test_a_cache_changes_nothing_and_its_calls_have_one_token_each():
    model, lengths = make_small(5), []
    model.model.layers[1].register_forward_hook(lambda module, args, output: lengths.append(output.shape[1]))
    cached = torch.stack(list(write(model, TOKENS, 6)))
    assert lengths == [5, 1, 1, 1, 1, 1]
    lengths.clear()
    assert torch.equal(torch.stack(list(write(model, TOKENS, 6, cached=False))), cached)
    assert lengths == [5, 6, 7, 8, 9, 10]


def test_each_row_of_a_batch_is_written_as_by_itself():
    model, rows = make_small(5), torch.cat((TOKENS, TOKENS.flip(1)))
    together = torch.stack(list(write(model, rows, 6)), 1)
    assert not torch.equal(*together)
    for row, written in zip(rows, together, strict=True):
        assert torch.equal(torch.cat(list(write(model, row[None], 6))), written)


@pytest.mark.parametrize(("left", "right"), [(2, 0), (0, 3), (1, 2)])
def test_padding_on_either_side_changes_nothing(left, right):
    model = make_small(6)
    padded, real = (F.pad(each, (left, right)) for each in (TOKENS, torch.ones_like(TOKENS)))
    found = model(padded, real)[:, left : left + 5]
    torch.testing.assert_close(found, model(TOKENS), rtol=0, atol=1e-12)


def test_without_its_packages_a_network_with_random_weights_stands_in(stand_in):
    state = torch.get_rng_state()
    assert "no-such-package" in stand_in.note
    assert "make language-model" in stand_in.note
    assert stand_in.words(stand_in.tokens("The capital of France is")) == ["The", " capital", " of", " France", " is"]
    assert len(stand_in.model.model.layers) == 30
    assert stand_in.go_on("The capital", 2) == smollm.load_language_model().go_on("The capital", 2)
    assert torch.equal(torch.get_rng_state(), state)


def test_every_cell_of_the_lesson_runs_without_its_packages(stand_in):
    lesson = {}
    with torch.random.fork_rng():
        for cell in read_source(choose(["11"])[0]).cells:
            if cell.cell_type == "code":
                exec(cell.source, lesson)
    assert "no-such-package" in lesson["language"].note
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in lesson["model"].modules())
    torch.testing.assert_close(lesson["found"]["by hand"], lesson["found"]["eager"])
    torch.testing.assert_close(lesson["found"]["caught"], lesson["found"]["eager"])


def test_the_lens_of_the_last_layer_is_the_models_own_answer(stand_in):
    shares = read_layers(stand_in, "one two three")
    torch.testing.assert_close(shares[-1], stand_in.model(stand_in.tokens("one two three"))[0].softmax(-1))
    with pytest.raises(CourseError, match="a prompt of 1 to 10 tokens can be drawn, got 11"):
        read_layers(stand_in, "a " * 10 + "b")


def test_the_explorer_tells_the_likeliest_five_of_a_layer_and_a_token(stand_in):
    explorer = LogitLens("one two three", layer=-1, language=stand_in)
    top = read_layers(stand_in, "one two three")[-1, -1].topk(5)
    assert explorer.sentence.startswith("After ' three', layer 30 of 30 would write: ")
    assert explorer.view.facts.tolist() == top.indices.tolist()
    use(explorer, ("Layer", 2), ("Token", 1))
    assert explorer.sentence.startswith("After 'one', layer 2 of 30")
    assert control(explorer, "Token").max == 3
    use(explorer, ("Prompt", "one two three four"))
    assert (control(explorer, "Token").value, control(explorer, "Token").max) == (4, 4)
    assert explorer.sentence.startswith("After ' four', layer 2 of 30")
    use(explorer, ("Prompt", ""))
    assert "got 0" in explorer.controls["problem"].value
    assert control(explorer, "Layer").value == 2


def test_only_one_head_is_read_by_taking_the_other_away():
    """Zero the values of a head, without a hook: the same verdict as the blindfold's."""
    words = ["the", "cat", "saw", "the", "dog"]
    page, moves = LessonPage("11_language_model"), []
    for head in (0, 1):
        block, x = make_two_head_block(words), encode(words)
        before = block(x)
        with torch.no_grad():
            block.self_attn.in_proj_weight[20 + 5 * head : 25 + 5 * head] = 0
        moves.append(not torch.allclose(block(x), before, atol=1e-4))
    assert moves == [False, True]
    assert page.shows("head 0 (the word before) blindfolded: the output does not move")
    assert page.shows("head 1 (the same word) blindfolded: the output moves")


def test_what_the_text_says_of_early_answers_of_steering_and_of_memory():
    page = LessonPage("11_language_model")
    early = "2, 4, 6, 8, ' ': 23 of 30 layers, all from layer 12 on", "layers that say ' ' after the first prompt: 16"
    assert page.shows(*early)
    assert 'the answer of 23 layers. But 16 say " " after the first prompt as well' in why("when_it_says_paris")
    assert page.shows("of 10: 0 without, 4 with the direction, 0 with a random one")
    assert "Of ten others, four speak of the sea with the direction, and none with a random one" in why("too_strong")
    with torch.device("meta"):
        weights = sum(each.numel() for each in LanguageModel().parameters())
    assert f"about {round(4 * weights / 2**20, -1):.0f} MiB" in find_prediction("a_list_of_states").options


def test_a_table_of_places_says_its_shares_in_words():
    table = draw_places(torch.tensor([[0.0, 1.0], [-0.001, 0.5]]), ["The", " cat"], [1, 2], "A finding", "A table.")
    rows = [line.split() for line in str(table).splitlines()]
    assert rows == [["A", "finding"], ["layer", "The", "cat"], ["1", "0%", "100%"], ["2", "0%", "50%"]]


@needs_smollm
@pytest.mark.slow
def test_smollm_knows_capitals_and_its_weights_are_kept_in_half_precision(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    language = smollm.load_language_model()
    (kept,) = (tmp_path / "hub" / "checkpoints").iterdir()
    assert 260e6 < kept.stat().st_size < 290e6, "135 million numbers of two bytes, and the tokenizer"
    assert language.go_on("The capital of France is", 2) == " Paris."
    before = kept.stat().st_mtime_ns
    assert smollm.load_language_model().go_on("The opposite of hot is", 1) == " cold"
    assert kept.stat().st_mtime_ns == before, "the second start reads what the first has kept"


@needs_smollm
@pytest.mark.parity
def test_smollm_equals_transformers():
    transformers = pytest.importorskip("transformers", reason="pip install transformers accelerate")
    pytest.importorskip("accelerate", reason="pip install accelerate")
    file = smollm.find_file()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    ours = LanguageModel(Settings()).eval()
    smollm.fill(ours, smollm.read_weights(file))
    names = {name for name, _ in theirs.eval().named_parameters()}
    assert names == {name for name, _ in ours.named_parameters()}
    for text in ("The capital of France is", "In 2024,\n\n  naïve  cafés cost 3.50!"):
        tokens = torch.tensor([tokenizer(text).input_ids])
        assert torch.equal(smollm.load_language_model().tokens(text), tokens)
        with torch.no_grad():
            assert (ours(tokens) - theirs(tokens).logits).abs().max() <= 1e-3


@pytest.mark.parity
def test_the_exercises_work_on_transformers_own_network():
    transformers = pytest.importorskip("transformers", reason="pip install transformers accelerate")
    sizes = {"vocab_size": 24, "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
    config = transformers.LlamaConfig(**sizes, rope_parameters={"rope_type": "default", "rope_theta": 100.0})

    class Logits(transformers.LlamaForCausalLM):
        def forward(self, tokens, real=None):
            return super().forward(tokens, attention_mask=real).logits

    theirs, ours = Logits(config).double().eval(), make_small(7)
    theirs.load_state_dict(ours.state_dict())
    answers = {each.name: each.reference for each in exercises_of(11)}
    padded, real = (F.pad(each, (1, 2)) for each in (TOKENS, torch.ones_like(TOKENS)))
    given = {"residual_stream": [TOKENS], "layer_by_layer": [TOKENS], "last_states": [1, padded, real]}
    for name, rest in {**given, "patch_token": [1, 2, TOKENS, TOKENS.flip(1)]}.items():
        found, wanted = (answers[name](model, *rest) for model in (theirs, ours))
        torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(wanted), rtol=0, atol=1e-3)
    direction = torch.arange(12.0)  # transformers turns in float32, whatever the weights are
    for model in (theirs, ours):
        answers["silence_head"](model, 1, 2)
        answers["steer"](model.model.layers[0], direction)
    torch.testing.assert_close(theirs(TOKENS), ours(TOKENS), rtol=0, atol=1e-3)


@pytest.mark.parity
def test_generate_of_transformers_calls_its_layers_as_the_lesson_says():
    transformers = pytest.importorskip("transformers", reason="pip install transformers accelerate")
    sizes = {"vocab_size": 24, "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3}
    theirs, lengths = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)), []
    theirs.model.layers[0].register_forward_hook(lambda module, args, output: lengths.append(output.shape[1]))
    theirs.generate(TOKENS, min_new_tokens=4, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert lengths == [5, 1, 1, 1]
