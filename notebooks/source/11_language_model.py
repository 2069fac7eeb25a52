# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A language model
#
# All hooks of this course work in a language model as well. In this lesson you read one while it works, change what it
# computes at a single word, and find the place where it keeps a country. Then you steer what it writes.
#
# The model is SmolLM2 with 135 million weights, which runs on a laptop. It is not part of the course: `make language-model`
# fetches it once, 100 MB, and from then on it works offline. Without it you can do all exercises, and read what the cells
# printed for us on the course's web site or in the folder `notebooks`; the cells themselves then run on a small network
# with random weights, which writes nonsense.
#
# ## What you will be able to do
#
# - **Read** the residual stream of a language model with hooks, and what each layer would write.
# - **Patch** one token at one layer, and **find** where a fact is carried.
# - **Steer** what a model writes, with a control.
# - **Collect** and **change** the right tokens while a model writes with a cache.
#
# **Minutes:** counted by the build

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 6 | A model that writes | prompts from the room, typed by you; ask what a token is | nothing |
# | 6 to 22 | The residual stream | draw the stream as a line with boxes beside it; exercise {residual_stream} | nothing |
# | 22 to 41 | What would each layer write? | the prediction with discussion and a second vote; then the explorer with prompts of their own; exercise {layer_by_layer} | nothing |
# | 41 to 46 | Pause | a rest, or time to finish an exercise | nothing |
# | 46 to 64 | Where is the country? | the prediction with discussion and a second vote; read the table column by column; exercise {patch_token} | nothing |
# | 64 to 70 | One head of many | one vote | nothing |
# | 70 to 77 | Steer | one vote; the control before anybody is impressed | exercise {steer} |
# | 77 to 83 | While it writes | one vote; the error of the patch, read aloud | exercise {stream_while_writing} |
# | 83 to 87 | What old tutorials say · Summary · Go further | one experiment that each person would make | the table |
#
# **Homework:** Exercises {steer} and {stream_while_writing}. Of *More*, the attention and exercise {attention_maps} are
# for those who work with transformers; the batches are for everybody who will ever use padding.

# %% find the course tags=["setup"]
# Find the course. Where it is missing, this says how to get it.
try:
    import course_utils
except ModuleNotFoundError:
    raise SystemExit(
        "This Python does not have the course.\n"
        "On your own computer: open the lessons with `make lab`, or choose the course's .venv as the kernel.\n"
        "On Colab or another server: upload the course as a zip file, run  %pip install the-file.zip  in a new cell,\n"
        "and restart the kernel."
    ) from None


# %% tags=["setup"]
import contextlib

import torch

from course_utils.exercises import check, hint, predict, replay, solution, why
from course_utils.lessons.lesson_11 import (
    attention_maps,
    last_states,
    layer_by_layer,
    patch_token,
    residual_stream,
    silence_head,
    steer,
    stream_while_writing,
)

_ = torch.manual_seed(0)

# %% tags=["setup"]
from course_utils.hooks.record import record
from course_utils.language.network import rotate, weigh, write
from course_utils.language.smollm import load_language_model
from course_utils.lessons.figures import draw_attention, draw_places
from course_utils.lessons.two_heads import HEADS, encode, make_two_head_block
from course_utils.vision.charts import bars

# %% [markdown]
# ## A model that writes
#
# The model takes numbers and gives numbers. A **tokenizer** cuts a text into pieces, the **tokens**, and gives each its
# number. For the last token the model returns one logit for each of 49,152 tokens: which one comes next? The likeliest is
# put behind the text, and the model is called again.

# %% [markdown] tags=["instructor"]
# **On this slide:** Type two prompts from the room, and let them say the next word aloud before the model does. Ask where
# in this program a hook could sit, and collect the answers without a comment.

# %% tags=["pretrained"]
language = load_language_model()
model = language.model
print(language.note)

# %% tags=["pretrained"]
prompt = "The capital of France is"
tokens = language.tokens(prompt)
print(language.words(tokens), tokens.tolist()[0])
with torch.no_grad():
    shares = model(tokens)[0, -1].softmax(-1)
for share, word in zip(*shares.topk(3), strict=True):
    print(f"{language.words(word)[0]!r}: {share:.0%}")
print(prompt + language.go_on(prompt, 2))

# %% [markdown]
# A token is often a word with the space before it. The network is written in plain PyTorch, in
# `course_utils/language/network.py`, with the names that it has in the library *transformers*. So whatever you do here with
# hooks, you can do there.
#
# ## The residual stream
#
# Each token is first turned into 576 numbers, by `embed_tokens`. Then come 30 layers. No layer replaces these numbers: it
# reads them, computes something, and **adds** it to them. What flows from layer to layer in this way is the **residual
# stream**. At the end a norm and the head make logits of it.
#
# ```text
# tokens ─► embed_tokens ─┬───────────► + ─┬───────► + ─► … ─► norm ─► lm_head ─► logits
#                         └► self_attn ─┘  └► mlp ─┘
#                           one layer of 30
# ```
#
# A forward hook on a layer sees the stream behind it: one vector of 576 numbers for each token.

# %% [markdown] tags=["instructor"]
# **On this slide:** Draw the line first, and then the boxes beside it. Ask what a layer that adds zeros does to the
# answer: nothing. It is the picture that they need when a head is silenced later.


# %% tags=["pretrained"]
def tell_shape(module, args, output):
    print(tuple(output.shape))


for layer in (model.model.layers[0], model.model.layers[29]):
    with layer.register_forward_hook(tell_shape):
        model(tokens)
print([name for name, _ in model.model.layers[0].named_children()])

# %% [markdown]
# In older versions of transformers (for a Llama like this one, up to 4.53) a layer returned a **tuple** whose first item was
# the stream, and hooks that were written for it take `output[0]`. With a tensor, `output[0]` is the first row of the batch,
# and nothing complains. So ask which of the two you have.
#
# ### Exercise · The residual stream
#
# Replace the `...` in the answer cell, run it, and then run the `check` below it. The checks use small models with random
# weights, so they work without SmolLM2. Stuck? Run `hint(residual_stream)` in a new cell.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. One hook serves them all, the embedding and the layers. Where does `model.model` keep its layers?
# 2. A layer may return a tuple, and a later layer may work in place. What must the hook take, and what must it store?


# %% tags=["answer"]
def residual_stream(model, tokens):
    """Call `model(tokens)` once and return what stands in the residual stream: a
    tensor (layers + 1, N, T, width).

    First comes what `model.model.embed_tokens` gives, then what each of
    `model.model.layers` hands on. If a layer returns a tuple, its first item is
    meant. A later layer may change the stream in place. The result has no graph, and
    no hook is left, even if the call raises an error.
    """
    ...


# %% tags=["check"]
check(residual_stream)

# %% [markdown]
# ## What would each layer write?
#
# The norm and the head turn the last layer's stream into logits. Nothing stops you from giving them the stream of an
# **earlier** layer: what would the model write if it ended there? This is called the **logit lens** (nostalgebraist, 2020).

# %% [markdown] tags=["sealed"]
# " Paris" follows "The capital of France is" with 77%. For each of the 30 layers, we take the token that is likeliest there.
# Which is the first layer that says " Paris"?
#
# - [ ] one of the first ten: A fact may be looked up early. But then it is not yet written in words that the head can read.
#   > Run the explorer on this prompt: what do the first ten layers say, and is it a word about France?
# - [ ] one of the middle ten: In the middle the stream is about something else. Its answers are spaces and dots.
#   > In which row of the explorer does the first word appear that has to do with capitals?
# - [x] one of the last ten: It is the very last one. Two layers before it, the likeliest token is " the".
#
# Only layer 30 says " Paris", and layer 29 says " capital". The opposite of hot and the city of the tower come in the last
# two layers. " " after "2, 4, 6, 8," is the answer of 23 layers. But 16 say " " after the first prompt as well, where it is
# wrong: many layers say so anyway, and only this control shows it.
#
# So does the model learn only in its last layer that the capital is Paris? That does not follow. The lens shows what the
# **head** can read. Perhaps the fact has been there for long, in a form that the head cannot read, or at another token. For
# that you need an experiment, which comes next.

# %% tags=["predict"]
predict("when_it_says_paris")


# %% tags=["pretrained"]
def lens(text):
    """The likeliest token of each layer after `text`."""
    with torch.no_grad(), record(model, *model.model.layers) as seen:
        model(language.tokens(text))
        stream = torch.cat([layer.output[:, -1] for layer in seen.values()])
        return language.words(model.lm_head(model.model.norm(stream)).argmax(-1))


first = lens(prompt)
for text in (prompt, "The opposite of hot is", "The Eiffel Tower is in the city of", "2, 4, 6, 8,"):
    said = lens(text)
    start = 1 + max((layer for layer, word in enumerate(said, 1) if word != said[-1]), default=0)
    print(f"{text} {said[-1]!r}: {said.count(said[-1])} of 30 layers, all from layer {start} on")
    print(f"    layers that say {said[-1]!r} after the first prompt: {first.count(said[-1])}")

# %% tags=["why"]
why("when_it_says_paris")

# %% [markdown]
# Here you can read every layer at every token. Try prompts of your own, with up to ten tokens.
#
# 1. What do the early layers write? Compare their answers with the token that they have just read.
# 2. Find a prompt whose answer is there before layer 20. Do these layers say the same after another prompt?

# %% [markdown] tags=["instructor"]
# **On this slide:** Let pairs try prompts for three minutes. An early answer is usually a space, a dot or " and", which the
# middle layers say anyway. Set phrases come from layer 24 on: "once upon a". Ask what the lens cannot see.

# %% tags=["explore", "pretrained", "after-when_it_says_paris"]
from course_utils.explorers import LogitLens

LogitLens("The capital of France is", layer=1, language=language)

# %% [markdown]
# ### Exercise · Layer by layer

# %% [markdown] tags=["sealed"]
# 2 points
# 1. What stands between the last layer and the head? An earlier layer's stream needs it as well.
# 2. In the hook of a layer: `model.lm_head(model.model.norm(stream[0, -1]))` are the logits, and `argmax` is the token.


# %% tags=["answer"]
def layer_by_layer(model, tokens):
    """Return what each layer would write next after `tokens` (1, T), if it were the
    last one: a list of ints, one a layer.

    What a layer hands on for the last token goes through `model.model.norm` and
    `model.lm_head`; the likeliest token counts. If a layer returns a tuple, its first
    item is meant. No hook is left, even if the call raises an error.
    """
    ...


# %% tags=["check"]
check(layer_by_layer)

# %% [markdown]
# ## Where is the country?
#
# "The capital of France is" and "The capital of Italy is" differ in one token. Somewhere the model carries that difference
# to its last token, where the answer is made. We look for it by **patching**, as in lesson 08: the model runs on *Italy*, but
# one token at one layer gets what it has for *France*.
#
# As a measure we take the lead of " Paris" over " Rome": the difference of the two logits.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let the room say what 0% and 100% would mean here before any number is shown, and ask for the two tokens
# that can matter at all. The first three tokens are the same in both prompts: what must a patch there do?

# %% tags=["pretrained"]
source = language.tokens("The capital of France is")
target = language.tokens("The capital of Italy is")
paris, rome = (language.tokens(word)[0, 0] for word in (" Paris", " Rome"))


def lead(logits):
    return logits[:, -1, paris] - logits[:, -1, rome]


with torch.no_grad(), record(model, *model.model.layers) as of_source:
    whole = lead(model(source))
least = lead(model(target))
print(f"the lead of Paris over Rome: {whole.item():.1f} for France, {least.item():.1f} for Italy")

# %% [markdown]
# What part of the way from Italy's lead to that of France does a patch go?
#
# All patches are made in one call of the model. The batch begins with one row, and each layer's hook adds five rows to it:
# one for each token.

# %% [markdown] tags=["sealed"]
# we patch layer 20 of 30, one token at a time. At which token does the patch turn the answer into " Paris"?
#
# - [ ] at "of", before the country: Up to there both prompts are the same, so this patch changes nothing.
#   > A token sees only what stands before it. Does "of" see which country follows?
# - [x] at the country: Even at layer 20, all of the difference still stands at the token " Italy" itself.
# - [ ] at "is", the last token: There the answer is made. But at layer 20 nothing of the country has arrived there.
#   > Patch the last token at layer 20: what does the model write, and with which probability?
# - [ ] at several, a part at each: It might be spread. Here it is in one place.
#   > Add up what the patches of all five tokens bring. How much of it comes from one of them?
#
# Up to layer 23 a patch of the country brings all of the lead, and a patch of the last token none. From layer 24 on it
# is the other way round. So the country waits at its own token, through 23 layers, and is carried to the last token
# **within one layer**. The lens saw nothing of it, because it read the last token, and the head.
#
# The controls: other countries bring their own capitals. With random vectors of the same length, the model does not know any
# country, and says " the" or " New". But the *lead* goes about half of the way with each of them, because " Rome" has gone. So
# look at more than one number.

# %% tags=["predict"]
predict("where_the_country_is")


# %% tags=["pretrained"]
def patch_each_token(module, args, output):
    """Hand on five rows more: the target's row, with one token patched in each."""
    rows, each = output[:1].repeat(5, 1, 1), torch.arange(5)
    rows[each, each] = of_source[module].output[0]  # row 0 gets token 0, row 1 token 1
    return torch.cat((output, rows))


layers = [1, 10, 20, 22, 23, 24, 25, 30]
with torch.no_grad(), contextlib.ExitStack() as stack:
    for layer in layers:
        stack.enter_context(model.model.layers[layer - 1].register_forward_hook(patch_each_token))
    unpatched, *patched = lead(model(target))
patched = torch.stack(patched).unflatten(0, (len(layers), 5))
ways = (patched - unpatched) / (whole - unpatched)

# %% tags=["setup", "pretrained"]
draw_places(
    ways,
    language.words(target),
    layers,
    title="The country stays at its token up to layer 23; from layer 24 on it is at the last one",
    alt="A table of layers and tokens. The column of the country is full down to layer 23, that of the last token from 24 on.",
)


# %% tags=["setup"]
def draw_as_long(states):
    """Random vectors, each as long as the state in the same row."""
    noise = torch.randn(states.shape, generator=torch.Generator().manual_seed(0))
    return noise * states.norm(dim=1, keepdim=True) / noise.norm(dim=1, keepdim=True)


# %% tags=["pretrained"]
countries = ["France", "Germany", "Japan", "Greece"]
with record(model, "model.layers.19", stop=True) as there:  # the run ends at this layer
    model(torch.cat([language.tokens(f"The capital of {country} is") for country in countries]))
states = there["model.layers.19"].output[:, 3]
states = torch.cat((states, draw_as_long(states)))


# %% tags=["pretrained"]
def patch_country(module, args, output):
    rows = output.repeat(len(states), 1, 1)
    rows[:, 3] = states
    return rows


with torch.no_grad(), model.model.layers[19].register_forward_hook(patch_country):
    logits = model(target)
moved = (lead(logits) - unpatched) / (whole - unpatched)
names, words = [*countries, *["random"] * 4], language.words(logits[:, -1].argmax(-1))
for name, word, way in zip(names, words, moved, strict=True):
    print(f"{name:8} {word!r:10} {way:4.0%} of the way")

# %% tags=["why"]
why("where_the_country_is")

# %% [markdown]
# ### Exercise · Patch one token

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Two runs, as in lesson 08: the first one keeps a state, the second one puts it in. What is kept may be changed by a later
#    layer: take a copy.
# 2. In the second run the hook returns a clone of the stream in which `[:, position]` is the kept state. If the layer returned
#    a tuple, return one as well.


# %% tags=["answer"]
def patch_token(model, layer, position, source, target):
    """Return the logits (vocabulary,) after the last token of `target`, when layer
    number `layer` hands on at `position` what it hands on there for `source`.

    `source` and `target` are (1, T), and `layer` counts from 0. At all other
    positions the layer hands on what it does for `target`. If it returns a tuple, its
    first item is the stream, and the rest stays. The result has no graph, and no
    hook is left, even if the model raises an error.
    """
    ...


# %% tags=["check"]
check(patch_token)

# %% [markdown]
# ## One head of many
#
# In layer 24 the country gets to the last token. Only attention carries anything from one token to another, and each layer
# has nine **heads** of it. Which of them does it? `o_proj`, the last module of the attention, gets the results of all heads
# beside each other, 64 numbers each. A forward pre-hook can set those of one head to 0. We do so in the layers 21 to 28.

# %% [markdown] tags=["instructor"]
# **Misconception:** "Attention weights are the explanation." **Ask:** "Which of the nine heads looks at the country, and which of
# them matters?" **Answer:** several look, one matters: only silencing tells.
#
# **On this slide:** Ask what it would mean if no head mattered (the work is shared), and if one did. Both happen in real
# networks. Say that silencing is an experiment with *needed*, and patching one with *enough*.

# %% [markdown] tags=["sealed"]
# of the 72 heads in the layers 21 to 28, one at a time is silenced. How many of them take away more than half of the lead
# of " Paris" over " Rome"?
#
# - [ ] none: The work could be shared among many heads, and often it is. Here it is not.
#   > In which layer did the table change from one column to the other? How many heads does this layer have?
# - [x] 1: One head of layer 24 takes 5.4 of 7.3. The next one takes 0.7.
# - [ ] about 10: All nine heads of layer 24 and a few more could have a part in it. Eight of the nine have hardly any.
#   > Each head looks somewhere else. How many of the nine look at the country?
# - [ ] more than 50: Then every head would be needed for everything.
#   > Each head adds its part to the stream. What is left of the answer if one of 72 parts is missing?
#
# It is head 5 of layer 24. Its attention tells what it does: at the last token it gives 90% of its weight to the country
# (*Attention under SDPA*, below). For Germany and Japan, too, no other head of the layer matters as much.
#
# Without this head " Paris" still has 14%. So the head carries most of the country, and not all of it.

# %% tags=["predict"]
predict("how_many_heads")


# %% tags=["pretrained"]
def add_rows(module, args):
    """Nine rows more go into the layer, one for each head."""
    return torch.cat((args[0], args[0][:1].expand(9, -1, -1)))


def silence(module, args):
    """The first of these nine rows loses head 0, the second one head 1, and so on."""
    heads, each = args[0].unflatten(2, (9, -1)).clone(), torch.arange(9)
    heads[each - 9, :, each] = 0
    return heads.flatten(2)


# %% tags=["pretrained"]
@torch.no_grad()
def silence_each_head(layers, text, right, wrong):
    """By how much each head's silence lowers the lead of a word, and the word's shares."""
    right, wrong = (language.tokens(word)[0, 0] for word in (right, wrong))
    with contextlib.ExitStack() as stack:
        for layer in layers:
            module = model.model.layers[layer - 1]
            stack.enter_context(module.register_forward_pre_hook(add_rows))
            stack.enter_context(module.self_attn.o_proj.register_forward_pre_hook(silence))
        logits = model(language.tokens(text))[:, -1]
    leads = logits[:, right] - logits[:, wrong]
    return leads[0] - leads[1:], logits.softmax(-1)[:, right]


# %% tags=["pretrained"]
fall, _ = silence_each_head(range(21, 29), prompt, " Paris", " Rome")
most = fall.topk(4)
bars(
    [round(value, 1) for value in most.values.tolist()],
    [f"layer {21 + place // 9}, head {1 + place % 9}" for place in most.indices.tolist()],
    title="One head carries the country",
)

# %% tags=["pretrained"]
for country, right in (("France", " Paris"), ("Germany", " Berlin"), ("Japan", " Tokyo")):
    fell, shares = silence_each_head([24], f"The capital of {country} is", right, " Rome")
    head = fell.argmax()
    print(f"{country}: head {1 + head} costs {fell[head]:.1f};{right} from {shares[0]:.0%} to {shares[1 + head]:.0%}")

# %% tags=["why"]
why("how_many_heads")

# %% [markdown] tags=["more"]
# ### More: The MLPs
#
# Each layer has an MLP as well, which works on every token by itself. Here one at a time is silenced, in the layers 1 to
# 15. The control is a prompt without any country.


# %% tags=["pretrained"]
@torch.no_grad()
def silence_each_mlp(text):
    """What the model says when the MLP of one of 15 layers is silent, and when none is."""
    with contextlib.ExitStack() as stack:
        for row, layer in enumerate(model.model.layers[:15]):

            def silence_row(module, args, output, row=row):
                output = output.clone()
                output[row] = 0  # row 0 loses the MLP of layer 1; the last row loses none
                return output

            stack.enter_context(layer.mlp.register_forward_hook(silence_row))
        return language.words(model(language.tokens(text).expand(16, -1))[:, -1].argmax(-1))


# %% tags=["pretrained"]
for text in (prompt, "The opposite of hot is"):
    *said, plain = silence_each_mlp(text)
    changed = [layer for layer, word in enumerate(said, 1) if word != plain]
    print(f"{text}{plain}: another word without the MLP of the layers {changed}")
cost, _ = silence_each_head([24], "The opposite of hot is", " cold", " Rome")
print(f"head 5 of layer 24 costs {cost[4]:.1f} in the prompt without a country")

# %% [markdown]
# Without the MLP of layer 1, 3, 9 or 12, the model loses both answers. These MLPs are needed without a country as well, so they
# say nothing about countries. The head of layer 24 costs much where there is a country, and little where there is none. Only the
# control tells the two cases apart.

# %% [markdown]
# ## Steer
#
# A patch puts one state in the place of another. You can also **add** something to the stream, while the model writes. What?
# The difference between the mean state of prompts about the sea and that of others is one direction in 576 dimensions
# (Panickssery et al., 2023). We take it from layer 21, and add it there at each token.

# %% tags=["pretrained"]
SEA = ["The ship on the ocean", "A sailor at sea", "Waves on the beach", "The boat and the harbour"]
LAND = ["The car on the street", "A clerk at work", "Clouds in the sky", "The house and the garden"]


def mean_state(texts):
    states = []
    for text in texts:
        with record(model, "model.layers.20", stop=True) as there:
            model(language.tokens(text))
        states.append(there["model.layers.20"].output[0, -1])
    return torch.stack(states).mean(0)


sea = mean_state(SEA) - mean_state(LAND)


# %% tags=["pretrained"]
def write_steered(texts, directions):
    """What the model writes after each text with its direction: a batch with a row for each."""

    def add(module, args, output):
        return output + directions[:, None]

    with model.model.layers[20].register_forward_hook(add):
        columns = list(write(model, torch.cat([language.tokens(text) for text in texts]), 8))
    written = map(language.tokenizer.decode, torch.stack(columns, 1).tolist())
    return [text + more for text, more in zip(texts, written, strict=True)]


# %% tags=["setup"]
import re

# Each has three tokens.
TEXTS = ["In the morning", "My friend told", "She looked at", "We decided to", "On Sunday they", "He always wanted"]
TEXTS += ["At last we", "When I was", "The old man", "Last summer I"]
OF_SEA = re.compile(r"\b(sea\b|ocean|beach|ship|sail|coast|boat|harbour)")


# %% [markdown] tags=["instructor"]
# **Misconception:** "More of the direction, more of the sea." **Ask:** "Which states has the model met in training?" **Answer:**
# none so far away.
#
# **On this slide:** Let the room propose two groups of prompts, such as glad and sad ones, and try them live. Insist on the
# control: what does a random direction of the same length do?

# %% [markdown] tags=["sealed"]
# with the direction once, the model writes about the sea. What does it write with four times the direction?
#
# - [ ] even more about the sea: Up to a point. But the stream gets further and further from any that the model has ever met.
#   > How long is the direction, compared with the stream that it is added to? And four times it?
# - [ ] the same: Four times as much is added, and the norm behind the layers keeps its share.
#   > Compare the sentences for the strengths 0 and 1. Why should it stop there?
# - [x] nonsense: The stream becomes one that the model cannot use, and the text falls apart.
# - [ ] nothing: The model always writes some token, the likeliest one.
#   > What does `argmax` return, however strange the logits are?
#
# The direction once sends the story to the beach, and against it the story stays on land. Twice the direction still leads to
# the coast, and four times as much destroys the text. A random direction of the same length changes the words only.
#
# One text is no finding yet. Of ten others, four speak of the sea with the direction, and none with a random one or without
# any. So the direction steers, but not every text.

# %% tags=["predict"]
predict("too_strong")

# %% tags=["pretrained"]
noise = draw_as_long(sea.expand(len(TEXTS), -1))
steered = {"plain": 0 * sea, "the sea": sea, "against the sea": -sea, "a random direction": noise[0]}
steered |= {"the sea, 2 times": 2 * sea, "the sea, 4 times": 4 * sea}
written = write_steered(["Yesterday I went"] * 6, torch.stack([*steered.values()]))
for words, text in zip(steered, written, strict=True):
    print(f"{words:18} {text}")

# %% tags=["pretrained"]
directions = torch.cat((0 * noise, sea.expand_as(noise), noise))
of_sea = [bool(OF_SEA.search(text)) for text in write_steered(TEXTS * 3, directions)]
plain, led, random = torch.tensor(of_sea).view(3, 10).sum(1).tolist()
print(f"texts about the sea, of 10: {plain} without, {led} with the direction, {random} with a random one")

# %% tags=["why"]
why("too_strong")

# %% [markdown]
# ### Exercise · Steer

# %% [markdown] tags=["sealed"]
# 2 points
# 1. What a forward hook returns takes the place of the output. Which dtype has the sum of a bfloat16 and a float32 tensor?
# 2. `output + direction.to(output.dtype)` is a new tensor of the stream's own dtype. Of a tuple, only the first item changes.


# %% tags=["answer"]
def steer(layer, direction):
    """Add `direction` (width,) to what `layer` hands on, at each token and in each
    call, and return the hook's handle.

    The stream keeps its dtype. If the layer returns a tuple, its first item is the
    stream, and the rest stays. What the layer itself returned is not changed in place.
    """
    ...


# %% tags=["check"]
check(steer)

# %% [markdown]
# ## While it writes
#
# `write` calls the model again for each new token. It would be a waste to compute all earlier tokens anew, so each layer
# keeps their keys and values in a **cache**. What does that mean for a hook?

# %% [markdown] tags=["sealed"]
# a hook on a layer notes how many tokens each call has. The prompt has 5 tokens, and the model writes 4. What does it note?
#
# - [ ] 5, 6, 7, 8: That is so without a cache: each call has all tokens so far.
#   > The keys and values of the first five tokens are in the cache. What would the second call need them for?
# - [x] 5, 1, 1, 1: The first call has the whole prompt, and each later one only the token that was written last.
# - [ ] 5, 1, 1, 1, 1: The last token that is written is never read: nobody asks what comes after it.
#   > How many tokens has the model written after its first call? How many calls does it need for four?
# - [ ] 8: That would be one call. But the second new token depends on the first.
#   > Could the model compute the seventh token before the sixth is known?
#
# There are four calls. The first one has the prompt and brings the first new token. Each later one has a single token. So a
# hook that collects gets 5 + 1 + 1 + 1 pieces, which belong behind each other, and one that keeps `output[:, -1]` has lost the
# prompt. A patch at position 3 belongs into the first call only: in the second call there is no position 3. So the hook
# asks `output.shape[1] > 3` first.

# %% tags=["predict"]
predict("tokens_in_each_call")

# %% tags=["pretrained"]
counts = []


def count(module, args, output):
    counts.append(output.shape[1])


with model.model.layers[0].register_forward_hook(count):
    list(write(model, tokens, 4))
print("tokens in each call:", counts)


# %% tags=["pretrained"]
def patch_fourth(module, args, output):
    output = output.clone()
    output[:, 3] = 0
    return output


with model.model.layers[0].register_forward_hook(patch_fourth):
    try:
        list(write(model, tokens, 4))
    except IndexError as error:
        print("IndexError:", error)

# %% tags=["why"]
why("tokens_in_each_call")

# %% [markdown]
# ### Exercise · While it writes

# %% [markdown] tags=["sealed"]
# 2 points
# 1. The first call has all tokens of the prompt, each later one a single token. What do you keep in each call?
# 2. `write` is a generator: go through it, for example with `list`. Keep `stream[0]` of each call, and join them with
#    `torch.cat`.


# %% tags=["answer"]
def stream_while_writing(model, layer, tokens, count):
    """Let the model write all tokens of the generator `write(model, tokens, count)`, and
    return what layer number `layer` hands on for each token that the model reads: a
    tensor (T + count - 1, width).

    `tokens` is (1, T), and `layer` counts from 0. The states stand in the order of the
    tokens, each once. If the layer returns a tuple, its first item is meant. The
    result has no graph, and no hook is left, even if the model raises an error.
    """
    ...


# %% tags=["check"]
check(stream_while_writing)

# %% [markdown] tags=["instructor"]
# **Misconception:** "The lens shows what the model knows at a layer." **Ask:** "Where did the country stand at layer 20?"
# **Answer:** at its own token, where the lens of the last token does not look, and in a form that the head need not read.
#
# **Misconception:** "`output[0]` is the stream." **Ask:** "What is `output[0]` of a tensor?" **Answer:** the first row of the
# batch. With a batch of one and a later `[0]` missing, nothing complains.
#
# **Misconception:** "A patch that moves the answer has found the fact." **Ask:** "What did the random vector do to the lead?"
# **Answer:** it moved it, too, because it took Rome away. Look at the word, and not only at one difference.
#
# **Misconception:** "While it writes, a hook sees the whole text each time." **Ask:** "What is in the cache?" **Answer:** the
# keys and values of the earlier tokens, so nobody computes them again.
#
# **Misconceptions, by exercise:** the embedding forgotten (1); the head without the norm (2); every token patched (3); the
# direction in float32 (4); the last token of each call only (5); `o_proj`'s output silenced, where the heads are mixed already
# (6); the last place of a row that ends in padding (7).
#
# **For discussion:** how would you find out whether the country is carried in the same way in a longer sentence? (Patch it
# there, at every layer; a sentence with two countries is the hard case.)
#
# **For discussion:** why did the random vector move the lead at all? (It took the state of Rome away. A measure that is a
# difference moves when either part does.)
#
# **For discussion:** patching said that the country is *enough* at one place, silencing said which head is *needed*. Which of
# the two would you publish? (Both, with more than one prompt.)

# %% [markdown] tags=["more"]
# ## More: One head less
#
# ### Exercise · Silence a head

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Where do the results of the heads still stand beside each other? `o_proj` mixes them.
# 2. A forward pre-hook on `self_attn.o_proj` gets `(module, args)`. The numbers of a head are
#    `[..., head * head_dim : (head + 1) * head_dim]` of a clone of `args[0]`.


# %% tags=["answer"]
def silence_head(model, layer, head):
    """Make head number `head` of layer number `layer` add nothing, in every call, and
    return the hook's handle. Both count from 0.

    `self_attn.o_proj` of the layer gets the results of all heads beside each other, a
    tensor (N, T, width): `self_attn.head_dim` numbers a head, which become 0. After
    `handle.remove()` the model is what it was.
    """
    ...


# %% tags=["check"]
check(silence_head)

# %% [markdown] tags=["more"]
# ## More: Batches with padding
#
# Texts of a batch have different lengths, so the shorter ones are filled up, on the left or on the right. `real` tells the model
# which tokens are real. A hook sees them all, and the state at a padded place means nothing: `output[:, -1]` of a row that was
# filled up on the right is such a state.

# %% tags=["pretrained"]
texts = ["The capital of France is", "The capital is"]
rows = [language.tokens(text)[0] for text in texts]
batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
real = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
print(real.tolist())
with torch.no_grad(), record(model, "model.layers.29") as seen:
    model(batch, real)
with torch.no_grad(), record(model, "model.layers.29") as by_itself:
    model(rows[1][None])
together, single = seen["model.layers.29"].output[1], by_itself["model.layers.29"].output[0]
for what, place in {"the last real token": len(rows[1]) - 1, "the last place": -1}.items():
    same = torch.allclose(together[place], single[-1], atol=1e-2)
    print(f"{what}: the state that the text has by itself: {same}")

# %% [markdown]
# ### Exercise · The last real token

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Padding may stand on the left, on the right, or on both sides. How do you find the last 1 in each row of `real`?
# 2. `(torch.arange(T) * real).argmax(1)` is its place. `states[torch.arange(N), places]` takes one state from each row.


# %% tags=["answer"]
def last_states(model, layer, tokens, real):
    """Call `model(tokens, real)` and return what layer number `layer` hands on for
    the last real token of each row: a tensor (N, width).

    `real` (N, T) is 1 at the real tokens, which stand together, and 0 at padding on
    either side. `layer` counts from 0. If the layer returns a tuple, its first item
    is meant. The result has no graph, and no hook is left.
    """
    ...


# %% tags=["check"]
check(last_states)

# %% [markdown] tags=["more"]
# ## More: Attention in PyTorch's own block
#
# Attention is a table of shares: a row for each word that looks, a column for each word that is looked at, and each row adds
# up to 1 (Vaswani et al., 2017). PyTorch has a block of its own, which looks at all words, also at later ones. This one has
# two heads with weights set by hand. The first head looks for *the word before*, the second one for *the same word*. What
# fits gets 96 times the attention of what does not: among five words that is 96 / (96 + 4) = 0.96.

# %% [markdown] tags=["instructor"]
# **On this slide:** Compute the 0.96 by hand with the room, and ask what a row of the table adds up to. Then the vote
# is about what PyTorch gives away, and not about attention.

# %%
words = ["the", "cat", "saw", "the", "dog"]
block, sentence = make_two_head_block(words), encode(words)
seen = []
with block.self_attn.register_forward_hook(lambda module, args, output: seen.append(output)):
    output = block(sentence)
print("the hook saw a", type(seen[0]).__name__, "of", len(seen[0]), "in an nn.TransformerEncoderLayer")

# %% [markdown] tags=["sealed"]
# a forward hook on the `nn.MultiheadAttention` inside an `nn.TransformerEncoderLayer`. Its output is a pair. What is
# the second of the two?
#
# - [ ] one map for each head: It could be: but the layer calls it with `need_weights=False`, to save time.
#   > Which of the two does the layer need to go on? What would you leave out to save time?
# - [ ] the mean over the heads: That is what `need_weights=True` alone would give. The layer asks for less.
#   > The mean is what you get if *you* call the attention, without further arguments. Who calls it here?
# - [x] nothing, None: The layer calls it with `need_weights=False`, and computes without ever having the weights.
#
# `nn.TransformerEncoderLayer` calls its attention with `need_weights=False`, and the fast kernel that does the
# work never writes the shares down.

# %% tags=["predict"]
predict("what_the_hook_sees")

# %%
print("first: ", tuple(seen[0][0].shape))
print("second:", seen[0][1])

# %% tags=["why"]
why("what_the_hook_sees")

# %% [markdown]
# You cannot change that call inside PyTorch. But a **forward pre-hook** that asks for the keyword arguments can change
# what a module is called with (lesson 03):


# %%
def ask_for_weights(module, args, kwargs):
    """A forward pre-hook: the same call, with the attention weights of each head."""
    return args, {**kwargs, "need_weights": True, "average_attn_weights": False}


self_attn = block.self_attn
asking = self_attn.register_forward_pre_hook(ask_for_weights, with_kwargs=True)
keeping = self_attn.register_forward_hook(lambda module, args, output: seen.append(output))
with asking, keeping:
    same = block(sentence)
weights = seen[1][1].detach()
print("weights:", tuple(weights.shape), " each row adds up to 1:", torch.allclose(weights.sum(3), torch.ones(1, 2, 5)))
print("the block's output is the same:", torch.allclose(output, same, atol=1e-6))

# %% tags=["setup"]
draw_attention(
    weights[0],
    words,
    [f"head {number}: {name}" for number, name in enumerate(HEADS)],
    title="One head looks one word back, the other one finds the same word",
    alt="Two tables. In the first the cells left of the diagonal are dark, in the second the diagonal and both 'the'.",
)

# %% [markdown]
# Check it: "cat" looks at "the" before it with 0.96. The first word has none before it: 0.20 for each. In the second head,
# "the" finds itself twice: 96 / (2 · 96 + 3) = 0.49 each. (`need_weights=True` *alone* gives the mean over the heads.)
#
# ### Is anybody reading it?
#
# Does a head have any effect? A pre-hook can make the experiment: a mask of minus infinity forces one head to look at
# nothing but the word itself. Does the block's output move?

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask which of the two heads they would put on a slide, before the test. The answer is usually the
# one that moves nothing.


# %%
def blindfold(head):
    """A pre-hook that lets one head see each word only by itself, by a mask (heads, L, L)."""
    mask = torch.zeros(2, len(words), len(words))
    mask[head].masked_fill_(~torch.eye(len(words), dtype=torch.bool), -torch.inf)
    return lambda module, args, kwargs: (args, {**kwargs, "attn_mask": mask})


for head, name in enumerate(HEADS):
    with self_attn.register_forward_pre_hook(blindfold(head), with_kwargs=True):
        moved = (block(sentence) - output).abs().max().item()
    print(f"head {head} ({name}) blindfolded: the output {'moves' if moved > 1e-4 else 'does not move'}")

# %% [markdown]
# The first head has a beautiful map, and nobody reads it: the weights after it are 0. No picture of the attention could have
# told you that (Jain & Wallace, 2019; but see Wiegreffe & Pinter). Look, then test.
#
# ### Exercise · The maps of any layer

# %% [markdown] tags=["sealed"]
# 3 points
# 1. The layer asks its `self_attn` for no weights. Who can change what a module is called with?
# 2. A forward pre-hook with `with_kwargs=True` gets `(module, args, kwargs)` and returns `(args, kwargs)`. The
#    arguments are `need_weights` and `average_attn_weights`.


# %% tags=["answer"]
def attention_maps(layer, x):
    """Return the attention weights (N, heads, L, L), detached, that
    `layer.self_attn` uses when `layer(x)` is called.

    `layer` is an `nn.TransformerEncoderLayer` with `batch_first=True`, `x` is
    (N, L, d). The call is a real one: the layer's mode stays as it is, and so does
    what it does with `x` before the attention. In training mode these are the
    weights after the dropout of this very call. No hook is left, by whatever way the
    call ends.
    """
    ...


# %% tags=["check"]
check(attention_maps)

# %% [markdown] tags=["instructor"]
# **Misconception:** "The attention map shows what the model uses." **Ask:** "What is multiplied with the shares, and what
# comes then?" **Answer:** the values and the output projection. If they are 0, the shares are read by nobody.
#
# **Misconception:** "A hook only looks." **Ask:** "What did the block do differently because a hook was there?" **Answer:**
# it left its fast path: in eval mode and without gradients one C++ function does all the work, and the layer takes it only
# if its modules have no hooks.

# %% [markdown] tags=["more"]
# ## More: Attention under SDPA
#
# Which tokens does head 5 of layer 24 look at? A forward hook on `self_attn` gets a pair, and in transformers the second item is
# meant for the weights. But `F.scaled_dot_product_attention` (SDPA) does the work in one kernel, and never has them:

# %% tags=["pretrained"]
attention = model.model.layers[23].self_attn
pairs = []
with torch.no_grad(), attention.register_forward_hook(lambda module, args, output: pairs.append(output)):
    model(tokens)
print("the second item:", pairs[0][1])

# %% [markdown]
# You can get them in three ways.
#
# 1. **Ask the model to compute them step by step.** Here that is `eager = True`; in transformers,
#    `attn_implementation="eager"`.
# 2. **Compute them yourself**, from what `q_proj` and `k_proj` give. Do not forget that the model turns both by the tokens'
#    places first; a pre-hook with `with_kwargs=True` catches the angles and the mask.
# 3. **Catch the function.** A `TorchFunctionMode` sees every function of torch that is called from Python, whoever calls it.

# %% tags=["pretrained"]
found = {}
attention.eager = True
keep = attention.register_forward_hook(lambda module, args, output: found.update(eager=output[1]))
with torch.no_grad(), keep:
    model(tokens)
attention.eager = False

# %% tags=["pretrained"]
kept = {}
layer = model.model.layers[23]
handles = [
    layer.register_forward_pre_hook(lambda module, args, kwargs: kept.update(kwargs), with_kwargs=True),
    attention.q_proj.register_forward_hook(lambda module, args, output: kept.update(query=output)),
    attention.k_proj.register_forward_hook(lambda module, args, output: kept.update(key=output)),
]
with torch.no_grad():
    model(tokens)
for handle in handles:
    handle.remove()
heads = (kept[name].unflatten(2, (-1, attention.head_dim)).transpose(1, 2) for name in ("query", "key"))
query, key = (rotate(each, kept["angles"]) for each in heads)
found["by hand"] = weigh(query, key, kept["mask"])

# %% tags=["pretrained"]
from torch.overrides import TorchFunctionMode


class Catch(TorchFunctionMode):
    """Keep the weights of every attention in the block."""

    def __init__(self):
        super().__init__()
        self.weights = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.nn.functional.scaled_dot_product_attention:
            self.weights.append(weigh(args[0], args[1], kwargs["attn_mask"]))
        return function(*args, **(kwargs or {}))


with torch.no_grad(), Catch() as caught:
    model(tokens)
found["caught"] = caught.weights[23]
for way, weights in found.items():
    print(f"{way:8}", [f"{share:.2f}" for share in weights[0, 4, -1].tolist()])

# %% [markdown]
# All three give the same: at the last token, head 5 of layer 24 gives nine tenths of its weight to the country, and this is the
# head that carries it. (Weights alone would not have proved that: see the blindfolded heads above.)

# %% [markdown] tags=["more"]
# ## More: What a list of states costs
#
# A hook that keeps the stream keeps a copy of 576 numbers for each token and each layer, and a text is soon long.

# %% [markdown] tags=["sealed"]
# the text has 1000 tokens, and a hook on each of the 30 layers keeps its stream in float32. How much memory is that?
#
# - [ ] about 2 MiB: That is one layer: 1000 · 576 · 4 bytes.
#   > How many layers have a hook? What is 30 times 2.2?
# - [x] about 66 MiB: 30 layers · 1000 tokens · 576 numbers · 4 bytes.
# - [ ] about 510 MiB: That is what the weights of the network need in float32.
#   > Does the number of weights depend on the length of the text? Does what the hooks keep depend on it?
#
# It is 66 MiB, an eighth of the weights. For a large model with 8192 numbers a token and 80 layers it is 2.6 GB for the same
# text. So keep what you need: one token, one layer, half precision (`.half()`), or a number.

# %% tags=["predict"]
predict("a_list_of_states")

# %% tags=["pretrained"]
width, layers_of_it = model.settings.width, len(model.model.layers)
print(f"{layers_of_it * 1000 * width * 4 / 2**20:.0f} MiB")

# %% tags=["why"]
why("a_list_of_states")

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | `output[0]` is the hidden state. | It was, while layers returned tuples. In transformers 5 a layer returns a tensor, and `output[0]` is its first row. |
# | Ask for `output_hidden_states=True`. | It keeps the stream of every layer, whether you need it or not, and its last entry has gone through the norm already. A hook takes what you want. |
# | Ask for `output_attentions=True`. | Under SDPA there are no weights to return: load the model with `attn_implementation="eager"`. |
# | Take `output[:, -1]` for the text's last token. | That is padding, if the row was filled up on the right. |

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask who has code with `output[0]` in it, and which version of the library it was written for. The second
# row explains many lenses whose last layer looks wrong: the norm was applied twice.

# %% [markdown]
# ## Summary
#
# - Layers add to the residual stream. A forward hook on a layer sees it: a tensor, or a tuple that begins with it.
# - The logit lens reads what the head can read at a layer. What it cannot read may be there all the same.
# - Patching finds where a fact is enough, silencing finds what is needed. Use controls: another prompt, a random vector.
# - A direction that a hook adds steers what the model writes; too much of it destroys the text.
# - Attention weights are not kept: ask for them, and then test whether anything depends on them.
# - With a cache, a hook gets the prompt once, and then one token a call. Join what you collect, and patch in the right call.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let three people say one experiment each that they would make with this model, with its control. The
# prompts that they choose are the best question that you can take home from the room.

# %% [markdown]
# ## Go further
#
# - Elhage et al., [A Mathematical Framework for Transformer Circuits](https://transformer-circuits.pub/2021/framework/index.html)
#   (2021): the residual stream, and heads that move information.
# - nostalgebraist, [interpreting GPT: the logit lens](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens)
#   (2020).
# - Meng et al., [Locating and editing factual associations in GPT](https://arxiv.org/abs/2202.05262) (2022); Wang et al.,
#   [Interpretability in the wild](https://arxiv.org/abs/2211.00593) (2022).
# - Jain & Wallace, [Attention is not explanation](https://arxiv.org/abs/1902.10186), and Wiegreffe & Pinter, [Attention is
#   not not explanation](https://arxiv.org/abs/1908.04626) (both 2019).
# - Panickssery et al., [Contrastive activation addition](https://arxiv.org/abs/2312.06681) (2023): steering.
# - Ben Allal et al., [SmolLM2](https://arxiv.org/abs/2502.02737) (2025): the model of this lesson.

# %% [markdown] tags=["instructor"]
# **On this slide:** At home: exercises {steer} and {stream_while_writing}, and a prompt of one's own, patched at every
# layer. Ask them to bring one that does not behave as France and Italy do.
