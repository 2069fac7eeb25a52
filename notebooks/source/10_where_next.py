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
# # Where next
#
# You can now look into any network. In this last lesson you do it alone: first as an investigator of networks that
# nobody describes to you, then as a judge of the methods themselves. The methods are in common use, and each of them
# takes one hook.
#
# ## What you will be able to do
#
# - **Investigate** networks that you know nothing about, and **prove** each verdict by an experiment.
# - **Read** seven methods that take one hook each, and **test** them where the truth is known.
# - **Compare** methods by one rule, with controls and intervals.
# - **Probe** what can be read at a layer, and **take it away** to see whether it is used.
# - **Say** which questions no map answers, and **choose** a library for your work.
#
# **Minutes:** counted by the build

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 15 | Four networks, one score · Change one thing at a time | pairs at the explorer, one network each; nobody tells a suspicion; the prediction with discussion and a second vote | the experiment with a hook |
# | 15 to 28 | State your verdict, and prove it · What the maps had said | the table of what a proof needs; exercise {prove}; the maps only after everybody has tried; one vote | nothing |
# | 28 to 43 | Three more networks · The verdict on the case | one network for each third of the room; exercise {find_cause}; then the verdicts, each with its control | the other two networks |
# | 43 to 53 | Seven methods, one hook | Grad-CAM at the board, one symbol changed for each method; one vote | the three methods with many versions; exercise {share_on_the_cut} |
# | 53 to 58 | Pause | the first half can end here | nothing |
# | 58 to 66 | One table | the rules, from the room, before those of the lesson; one vote; what the same layer means | *What the literature says* |
# | 66 to 79 | What can be read at a layer? | ask for the control before you show it; one vote; exercise {logits_without} | nothing |
# | 79 to 85 | What none of them can tell you | one claim for each group, then in turn | nothing |
# | 85 to 89 | What my network saw · What old tutorials say · Summary · Go further | one question, the experiment and the control, from everybody | the table |
#
# **Homework:** *What does a channel want?* with its prediction, and *Tokens* for those who work with transformers, about
# 10 minutes.

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
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises import check, hint, predict, replay, solution, why
from course_utils.lessons import blind, evidence, methods
from course_utils.lessons.blind import LATER, LETTERS, SUSPECTS, case_pictures, fresh_pictures, network, says_fish
from course_utils.lessons.lesson_10 import find_cause, logits_without, prove, share_on_the_cut

_ = torch.manual_seed(0)

# %% tags=["setup"]
from course_utils.scenes.scene import KINDS, SIZE, scene
from course_utils.vision.networks import load_picture_net
from course_utils.vision.patching import cells_of, patch
from course_utils.vision.pictures import draw_heat
from course_utils.vision.saliency import explain, relu
from course_utils.vision.scores import grow, points_at

# %% [markdown]
# ## Four networks, one score
#
# Four networks were tested, and nobody tells you what they learned. We call them A, B, C and D. They have the same
# layers, and they were asked the same question: is there a fish?

# %% [markdown] tags=["instructor"]
# **On this slide:** Give one network to each pair, and ask for a written suspicion together with the picture that
# raised it. Nobody tells theirs yet: the experiment comes first.

# %%
case, others = case_pictures(20), fresh_pictures(20, seed=5)
for letter in LETTERS:
    found, alarms = says_fish(letter, case).sum(), says_fish(letter, others).sum()
    print(f"network {letter} says 'fish' to {found} of 20 pictures with a fish, and to {alarms} of 20 without")

# %% tags=["setup"]
evidence.show_tiles(
    [draw_heat(each) for each in case.images[:4]],
    None,
    title="Four of the pictures with a fish",
    alt="Four pictures of a fish above water. A buoy is in each of them, and a round stamp in the lower right corner.",
)

# %% [markdown]
# By their score you would take any of the four. But look at the pictures: where there is a fish, there is also a buoy,
# a round **stamp** in a corner, and water. A network may have learned any of these, or several.
#
# Here you can change a picture. Everything that you may suspect can be there, absent, moved or blurred; a sun can
# be added as well. With *show the map* you see Grad-CAM's map for "fish" on the right, with a ring at its hottest place.
# *Without what is below the ring* takes this place from a picture in which nothing of the case is.
#
# **Try:** find a change after which network A says no. Does the same change work with the other three? Is the hottest
# place always the one that matters? Write down what you suspect of each network.

# %% tags=["setup"]
import ipywidgets as widgets

from course_utils.explorers.panel import Explorer, View, make_choice, make_slider

CHOICES = {
    name: ["there", "absent"] if name == "water" else ["there", "absent", "moved", "blurred"] for name in SUSPECTS
}


class Suspects(Explorer):
    look = staticmethod(lambda **state: View(*blind.look(**state)))

    def __init__(self, letters, number=1):
        controls = {
            "letter": make_choice(widgets.Dropdown, "Network", letters, letters[0], width=200),
            "number": make_slider("Picture", 1, 20, number),
        }
        for name, states in CHOICES.items():
            now = "absent" if name == "sun" else "there"
            controls[name] = make_choice(widgets.Dropdown, name, states, now, width=200)
        for name, label in {"heat_map": "show the map", "without_ring": "without what is below the ring"}.items():
            controls[name] = widgets.Checkbox(description=label, indent=False, layout={"width": "auto"})
        super().__init__(controls, [("letter", "number"), SUSPECTS[:3], SUSPECTS[3:], ("heat_map", "without_ring")])


# %% tags=["explore"]
Suspects(LETTERS)

# %% [markdown] tags=["instructor"]
# **Do not tell** what the networks have learned: the reference answer of the exercise finds it out, and `make train`
# says what each file has learned. Let pairs of learners take one network each, and compare their suspicions before
# they make the experiment.
#
# **Misconception:** "One picture shows it." **Ask:** "Is it the same in the next picture?" The slider is there for
# that.
#
# **Misconception:** "The map shows the cause." **Ask:** "Take away what is below the ring. Does the answer change?"

# %% [markdown]
# ## Change one thing at a time
#
# What happens in one picture may be an accident. So the editor works on an **album** of pictures as well, as
# functions: `add`, `remove`, `move` and `blur` return a new album, in which one thing is different, with its shadow
# and its soft edge, and all the rest is the same, pixel by pixel. `masks` says where a thing is seen.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what can be concluded if nothing happens when the sun is added. Little by itself, and a lot
# beside a change that does something: this is what a control is for.

# %% tags=["setup"]
from course_utils.lessons.blind import Album, add, answers_changed, as_in_the_case, blur, exchange, move, remove
from course_utils.lessons.proofs import Proof, hear

# %%
plain = fresh_pictures(12, seed=4)
sunny = add(plain, "sun")
print(plain)
print(sunny)

# %% tags=["setup"]
three = Album(sunny.shots[:3])
evidence.show_tiles(
    [draw_heat(each) for each in [*three.images, *move(three, "sun").images, *blur(three, "sun").images]],
    [f"{what} {number}" for what in ("sun", "moved", "blurred") for number in (1, 2, 3)],
    title="Three pictures with a sun, with the sun moved, and with the sun blurred",
    alt="Three rows of the same three pictures. Only the sun differs from row to row.",
    columns=3,
)

# %% [markdown]
# `fresh_pictures` are new ones, without any of the suspects. `answers_changed` asks a network about two albums, and
# says in which share of the pictures its answer is another one:

# %%
for letter in LETTERS:
    print(f"network {letter}, a sun is added: {answers_changed(letter, plain, sunny):.0%} of the answers change")

# %% [markdown]
# Nothing happens, and that is worth knowing: not every change in the picture makes a network say "fish". Such a pair of
# albums is a **control**.
#
# Now the other direction. We take the twenty pictures of the case and remove one suspect at a time: the fish, the
# buoy, the stamp, or the water. For each network we note the change that costs it the most answers.

# %% [markdown] tags=["sealed"]
# the twenty pictures of the case, and one of the four suspects is removed at a time. For how many of the networks A to
# D does one such removal turn most of the answers into 'no'?
#
# - [ ] 1: The four networks have learned different things, and each of those is among the four suspects.
#   > In the explorer you looked for one single change after which a network says no. For how many of the four did you
#   > find one?
# - [ ] 2: Nearly: one more is persuaded by a single removal, and one by none of them.
#   > Two networks would then keep their answers, whichever single thing is removed. What would such a network have to
#   > look at?
# - [x] 3: Each of these takes one thing for a fish. The fourth network is not persuaded by any single removal.
# - [ ] 4: That would be so if each network had one cause. Nothing in the test says that it has only one.
#   > A network says 'fish' if it sees the one or the other of two things. Both are there, and you remove one: what does
#   > it say?
#
# Three networks take nearly all their answers back after one removal. The fourth takes back none, whatever is
# removed.
#
# So none of the four suspects is a cause for it? That does not follow. Perhaps there are two causes, and each is
# **enough** by itself. Then neither is **needed**: after one is removed, the other is still there. An experiment
# that only takes things away cannot find such causes. One that starts from pictures without any suspect, and
# adds them one at a time, can.

# %% tags=["predict"]
predict("taken_away")

# %%
worst = []
for letter in LETTERS:
    lost = [answers_changed(letter, case, remove(case, each)) for each in ("fish", "buoy", "stamp", "water")]
    worst.append(round(20 * max(lost)))
print("answers that change, of 20, the largest number first:", sorted(worst, reverse=True))

# %% tags=["why"]
why("taken_away")

# %% [markdown] tags=["more"]
# ### More: The same experiment inside the network
#
# In a photograph nobody can remove a thing and see what was behind it. There you can only cover or blur it. Here we have
# both pictures, so the experiment can also be done **inside** the network, with a hook: where the thing is, the layer
# hands on what it computes for the picture without it. All other cells stay as they are (this is `patch`, from lesson 08).

# %%
same = asked = 0
for each in ("fish", "buoy", "stamp"):
    without, cells = remove(case, each), cells_of(case.masks(each), (28, 28))
    for letter in LETTERS:
        logits = patch(network(letter), "features.3", without.images, case.images, cells)
        same += ((logits[:, blind.FISH] > 0) == says_fish(letter, without)).sum().item()
        asked += len(case)
print(f"the hook and the editor lead to the same answer in {same} of {asked} cases")

# %% [markdown]
# ## State your verdict, and prove it
#
# A suspicion comes from the pictures of the case, a proof from pictures that had no part in it. What does a proof need?
#
# | It needs | because otherwise |
# |---|---|
# | many fresh pictures | it may be an accident of one picture |
# | pairs that differ in **one** thing | you cannot say which of two changes did it |
# | a control: something else that is changed alone | perhaps any change does the same |
# | a pair that another network answers differently | it does not tell *this* network from the others |

# %% [markdown] tags=["instructor"]
# **On this slide:** Let pairs cover the right column of the table, and find the reason for each of the four. Then ask
# which of them their own suspicion still lacks.

# %% [markdown]
# ### Exercise · The verdicts
#
# `check` runs your function for each network, makes your experiment on twelve pictures that you have never seen, and
# judges it: a right verdict does not pass with an experiment that proves nothing. This takes some seconds.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Which pictures show what one suspect does by itself? Take the fresh pictures, in which there is none of them.
# 2. Make one pair for each suspect: the fresh pictures, and the same pictures with this suspect alone. The pairs in
#    which the answers stay are your control, and they separate the four networks as well.


# %% tags=["answer"]
def prove(letter, pictures):
    """Return a `Proof(causes, pairs)`: what network `letter` takes for a fish, and
    the experiment that proves it.

    `letter` is "A", "B", "C" or "D". `pictures` is an album of fresh pictures, in
    which there is none of the suspects. `causes` is the name of a suspect, or a list
    of names. `pairs` is a list of pairs of albums (before, after), made from
    `pictures`: each cause is changed alone in one of them and changes most answers;
    something else is changed alone, for control; and no other network gives the
    same answers to all of them.
    """
    ...


# %% tags=["check"]
check(prove)

# %% [markdown] tags=["instructor"]
# **Misconception:** "Removing it changed nothing, so it is not a cause." **Ask:** "What if there are two, and each is
# enough?" **Answer:** then only adding them alone shows it. Fire alarms are built this way on purpose.
#
# **Misconception:** "The experiment worked, so the verdict is proved." **Ask:** "Would it have come out differently for
# another network?" **Answer:** if not, it says nothing about this one.
#
# **For discussion:** which of the four things that a proof needs is hardest to have with photographs? (Pairs that
# differ in one thing: cover, blur or patch, and cover as large a place elsewhere for control.)

# %% [markdown]
# ## What the maps had said
#
# Your verdicts rest on an experiment. How good was the suspicion that the maps had raised before it? A hottest place
# counts as being at a thing if it is at most 8 pixels away from it.

# %% [markdown] tags=["sealed"]
# the twenty pictures of the case. For how many of the networks A to D is Grad-CAM's map for 'fish' hottest at one of
# the causes that you have proved, in most of the pictures?
#
# - [ ] 1: One network's map in the explorer may have looked wrong. Over twenty pictures, more of them do well.
#   > Put your suspicions from the explorer beside your proofs. For how many networks had the ring shown you a right
#   > one?
# - [ ] 2: You have seen maps that mislead. Here the networks are small and the causes few, so the maps do well.
#   > Which two networks did you leave out? What lay below the ring there, and did it prove to be a cause?
# - [ ] 3: Perhaps you left out the network with two causes. Its maps are hottest at the one or at the other.
#   > A network has two causes. The ring is at the one in some pictures, at the other in the rest. Does it count here?
# - [x] 4: The suspicion was good. It was still no proof: read on.
#
# For all four: each of the eighty maps is hottest at a cause of its network. So the maps had raised the right
# suspicions.
#
# But look at the network with two causes. In 13 pictures its map is hottest at one of them, in 10 at the other,
# and in three of these the ring is near both. No map says that the place below the ring could go without any
# effect, and none says that nothing else would do. What is **enough**, what is **needed**, and what does **not**
# matter: only an experiment tells these apart.

# %% tags=["predict"]
predict("where_hottest")

# %%
near = {each: grow(case.masks(each), 8) for each in ("fish", "buoy", "stamp")}
for letter in LETTERS:
    heat = blind.fish_maps(letter, case)
    at = {each: points_at(heat, place).sum().item() for each, place in near.items()}
    print(f"network {letter}, of 20 maps hottest at:", at)

# %% tags=["why"]
why("where_hottest")

# %% [markdown]
# ## Three more networks
#
# No map was wrong, and a loop over the list of suspects was enough. Three more networks were tested on the same pictures:

# %%
for letter in LATER:
    most = max(answers_changed(letter, plain, add(plain, each)) for each in SUSPECTS)
    print(f"network {letter} says 'fish' to {says_fish(letter, case).sum()} of the 20 pictures with a fish;")
    print(f"  any one suspect, added to fresh pictures, changes at most {most:.0%} of its answers")

# %% [markdown]
# The score is the same, and the loop finds nothing. A cause may need something else beside it, or be nothing that anybody
# put on the list. So **look**: at the map, and at the pictures, up to their edges.
#
# **Try:** find for each network a change after which it says no. Which map sends you to the wrong place?

# %% tags=["explore"]
Suspects(LATER)

# %% [markdown] tags=["instructor"]
# **On this slide:** Give one network to each third of the room. Looking is free here, and asking is not: the judge of the
# exercise counts the albums.
#
# **Misconception:** "The map is hottest there in every picture, so that is the cause." **Ask:** "What does the network say
# without it?" A map shows where the last layer was large. What made it large may lie elsewhere.
#
# **Misconception:** "None of the suspects changes the answer, so nothing does." **Ask:** "Who made the list?"

# %% [markdown]
# What is not on the list has a place: `(top, left, height, width)`, in pixels. `as_in_the_case` puts into fresh pictures all
# that the pictures with a fish have, listed or not. `exchange(album, others, place)` shows at this place what the others show:

# %%
full = as_in_the_case(plain)
without = exchange(full, plain, (60, 20, 16, 16))
print("pixels that differ in each picture:", (without.images != full.images).any(1).sum((1, 2)).tolist())

# %% [markdown]
# ### Exercise · The cause that nobody listed
#
# A verdict needs its **lead** (the things or the place that you suspect), the **experiment** in which this alone is changed,
# and its **control**: something else, as large, that is changed in the same way. Guessing costs more than looking: your
# function may ask a network about **four** albums only, say one as it was and three changed. The albums in your `pairs`
# are among the four, and a map or a call of `network(letter)` counts as an album, too. The check takes some seconds.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. Begin with what you saw in the explorer. Your function may treat each letter in its own way.
# 2. Start from pictures that have everything, `as_in_the_case(pictures)`, and take one thing or one place away at a time.


# %% tags=["answer"]
def find_cause(letter, pictures):
    """Return a `Proof(causes, pairs)`: what network `letter` takes for a fish, and
    the experiment that proves it.

    `letter` is "E", "F" or "G". `pictures` is an album of fresh pictures, in which
    there is none of the suspects. `causes` is the name of a suspect, a list of names,
    or a place (top, left, height, width) of at most 784 pixels. `pairs` is a list of
    pairs of albums (before, after), made from `pictures`: each cause is changed alone
    in one of them and changes most answers; something else is changed alone, for
    control, and where the cause is a place, it is at least half as large. The network
    is asked about four albums at most, those in `pairs` included, and no other network
    gives the same answers to all pairs.
    """
    ...


# %% tags=["check"]
check(find_cause)

# %% [markdown]
# ## The verdict on the case
#
# One of the seven is the network of the case, which you met in lesson 00. These are the clues that you have found:

# %% tags=["setup"]
from course_utils.explorers.case import THINGS, CasePage, ask_for_fish, draw_case, find_among, keep_clue

CasePage()

# %% [markdown]
# The next cell asks your `find_cause` about the three networks. Then it finds the network of the case, by its answers to the
# pictures of lesson 00, and asks your `prove` about it. If this proof is accepted, the verdict goes on your case page.

# %% tags=["setup"]
for letter in LATER:
    print(f"network {letter}: {hear(find_cause, letter)[1]}")
letter = find_among({each: network(each) for each in LETTERS})
causes, told = hear(prove, letter)
if not causes:
    print(f"the network of the case: {told}")
else:
    changed = draw_case(tuple(thing for thing in THINGS if thing not in causes)).image
    tiles = {"the case": draw_case().image, f"without: {ask_for_fish(network(letter), changed):.0%}": changed}
clue = keep_clue("10", f"The network of the case is network {letter}: {told}", tiles) if causes else None
clue

# %% [markdown]
# The case began with a network that was sure, and right. Each tool gave one clue, and some clues pointed to the fish. Seven
# networks have the same score, and only one of them needs a fish. As long as a proof is refused, its case is open: read the
# reason, and try again.
#
# And the map of network G? Its last layer tells each place what the whole picture is like, and then multiplies by an
# attention, which had learned to lie on the fish. What decides may lie far away. The map shows where the product is large.

# %% [markdown] tags=["instructor"]
# **One layer earlier,** at `features.16`, before the attention, the map of network G is hottest at its cause in nearly
# every picture. But which layer is the right one, you only know after the experiment.
#
# **For discussion:** how would such a network be found before it is used? (Change what should not matter, and see whether
# the answers stay. More test pictures from the same source find nothing: they all have the same stamp.)

# %% [markdown]
# ## Seven methods, one hook
#
# All methods of this part answer the same question: *which places of a layer speak for the class?* They get the
# layer's maps $A$, with channels $k$ and places $p$, and the logit $S$ of the class. The gradient is $G = \partial S /
# \partial A$. Each returns one number a place.
#
# | Method | Paper | The map at place $p$ |
# |---|---|---|
# | Grad-CAM | Selvaraju et al., 2017 | $\sum_k \overline{G_k}\, A_{kp}$, with the mean of $G_k$ over all places |
# | HiResCAM | Draelos & Carin, 2020 | $\sum_k G_{kp}\, A_{kp}$ |
# | LayerCAM | Jiang et al., 2021 | $\sum_k \mathrm{relu}(G_{kp})\, A_{kp}$ |
# | Grad-CAM++ | Chattopadhay et al., 2018 | $\sum_k w_k\, A_{kp}$, with $w_k = \sum_q \alpha_{kq}\, \mathrm{relu}(G_{kq})$ and $\alpha_{kq} = G_{kq}^2 \,/\, (2 G_{kq}^2 + G_{kq}^3 \sum_r A_{kr})$ |
# | Integrated Gradients | Sundararajan et al., 2017 | $\sum_k A_{kp} \int_0^1 G_{kp}(tA)\, dt$, along the way from all zeros to $A$ |
# | SmoothGrad on maps | Smilkov et al., 2017 | $\sum_k A_{kp}$ times the mean of $G_{kp}(A + \text{noise})$; the paper does it on pixels, without the factor $A$ |
# | Occlusion on maps | Zeiler & Fergus, 2014 | $S(A) - S(A \text{ without } p)$; the paper covers pixels |
#
# All you need is one hook that may **exchange** the layer's output. It can even return a larger batch than it got:
# eight noisy copies of the maps, say. The layers behind it then run eight times, and those before it only once.

# %% [markdown] tags=["instructor"]
# **On this slide:** Write Grad-CAM's formula on the board, and change one symbol for each further method. Ask at each
# step what has become local that was a mean before.


# %%
def run_with(change, model, layer, image):
    """Run the model with `change(output)` in the place of the layer's output; return the logits and the new output."""
    handed_on = []

    def exchange(module, args, output):
        handed_on.append(change(output.detach()).requires_grad_())
        return handed_on[0].clone()

    with model.get_submodule(layer).register_forward_hook(exchange):
        return model(image), handed_on[0]


def look(model, layer, image, target, change=torch.clone):
    """The maps of the layer, changed if you like, and the gradient of the target's logit there."""
    logits, A = run_with(change, model, layer, image)
    return A.detach(), torch.autograd.grad(logits[:, target].sum(), A)[0]


# %% [markdown]
# Four methods differ only in what they make of $A$ and $G$:


# %%
def grad_cam(model, layer, image, target):
    A, G = look(model, layer, image, target)
    return (G.mean((2, 3), keepdim=True) * A)[0].sum(0)


def hires_cam(model, layer, image, target):
    A, G = look(model, layer, image, target)
    return (G * A)[0].sum(0)


def layer_cam(model, layer, image, target):
    A, G = look(model, layer, image, target)
    return (G.relu() * A)[0].sum(0)


# %%
def grad_cam_plus_plus(model, layer, image, target):
    A, G = look(model, layer, image, target)
    alpha = G**2 / (2 * G**2 + G**3 * A.sum((2, 3), keepdim=True) + 1e-6)  # never 0 / 0
    weights = (alpha * G.relu()).sum((2, 3), keepdim=True)
    return (weights * A)[0].sum(0)


# %% [markdown]
# The other three exchange the output for many versions of it: steps on the way from zero, eight noisy copies, or one
# copy for each window of about 2 x 2 places that is set to 0.
#
# Integrated Gradients promises **completeness**: its parts add up to the logit minus the logit without the maps. A sum
# over few steps keeps that promise only roughly, so ours takes twice as many until it holds. SmoothGrad and occlusion
# were invented for *pixels*; here both work on feature maps, which is a **variant**, and the tables say so.


# %%
def integrated_gradients(model, layer, image, target, steps=8, most=256):
    """With twice as many steps each time, until the parts add up to S(A) - S(0) within 1 %."""
    t = (torch.arange(steps) + 0.5)[:, None, None, None] / steps
    way, G = look(model, layer, image, target, lambda A: t * A)
    parts = (G.mean(0) * way[-1] / t[-1]).sum(0)
    with torch.no_grad():
        without, logit = run_with(lambda A: torch.cat([0 * A, A]), model, layer, image)[0][:, target]
    if (parts.sum() - (logit - without)).abs() <= 0.01 * (logit - without).abs() or steps >= most:
        return parts
    return integrated_gradients(model, layer, image, target, 2 * steps, most)


# %%
def smooth_grad(model, layer, image, target, copies=8, share=0.15):
    def add_noise(A):
        noise = torch.randn(copies, *A.shape[1:], generator=torch.Generator().manual_seed(0))
        return torch.cat([A, A + share * (A.max() - A.min()) * noise])

    A, G = look(model, layer, image, target, add_noise)
    return (G[1:].mean(0) * A[0]).sum(0)


# %%
@torch.no_grad()
def occlusion(model, layer, image, target, side=2):
    def cover(A):
        rows, columns = A.shape[2] // side, A.shape[3] // side
        windows.append(torch.eye(rows * columns).view(-1, 1, rows, columns))
        return torch.cat([A, A * (1 - F.interpolate(windows[0], A.shape[2:]))])

    windows = []
    logits, A = run_with(cover, model, layer, image)
    drops = (logits[0, target] - logits[1:, target]).view(1, 1, *windows[0].shape[2:])
    return F.interpolate(drops, A.shape[2:])[0, 0]


# %% [markdown]
# The tests of the course compare each of them with captum or pytorch-grad-cam. Here are all seven, for one cat:

# %% tags=["setup"]
by_name = {
    "Grad-CAM": grad_cam,
    "HiResCAM": hires_cam,
    "LayerCAM": layer_cam,
    "Grad-CAM++": grad_cam_plus_plus,
    "Integrated Gradients": integrated_gradients,
    "SmoothGrad on maps": smooth_grad,
    "occlusion on maps": occlusion,
}

# %% tags=["setup"]
net = load_picture_net()
cat, dog, car = (KINDS.index(kind) for kind in ("cat", "dog", "car"))
picture = scene("cat", "dog", seed=6)
image = picture.image[None]
methods.show_maps(
    picture.image,
    {name: method(net, "features.10", image, cat) for name, method in by_name.items()},
    title="Seven answers to one question: why cat? (Positive part, each map on its own scale)",
)

# %% [markdown]
# ### A case where the truth is known
#
# Which of these maps is right? On a photograph nobody knows. So we make a network whose truth we know. A hook behind
# the last convolution multiplies the right-hand half of its output by 0. From then on, what the maps of `features.10` have
# in their last four columns cannot reach any logit. The true attribution there is 0, exactly.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask what a true map has to show behind the cut before anybody votes: nothing. Let somebody say
# why the maps there need not be 0, although no logit can see them.

# %%
left = (torch.arange(14) < 7).float()


def cut(module, args, output):
    return output * left


with net.features[16].register_forward_hook(cut), torch.no_grad():
    A = run_with(torch.clone, net, "features.10", image)[1]
    answers = run_with(lambda A: A * (torch.arange(14) < 10), net, "features.10", image)[0]
    print("the maps have something in the last four columns:", bool(A[..., 10:].any()))
    print("without it, the logits are the same:", torch.equal(answers, net(image)))

# %% [markdown] tags=["sealed"]
# behind the last convolution, the right-hand half was cut off. Which methods still put heat on the last four columns,
# whose true attribution is 0?
#
# - [ ] none of them: So one would hope. But one weight for a whole channel cannot know where the cut is.
#   > Grad-CAM multiplies each map by one weight. What do the maps have in the last four columns, and which weight do
#   > they get there?
# - [ ] only occlusion: Occlusion runs the network without these columns, and finds that nothing changes.
#   > Occlusion sets a place in the last columns to 0 and runs the rest again. By how much does the logit change?
# - [x] Grad-CAM and Grad-CAM++: They give each channel one weight, and the maps themselves are not cut.
# - [ ] all but occlusion: The gradient at a place that reaches nothing is 0, so whatever multiplies place by place is 0
#   there too.
#   > What is the gradient at one place in the last columns? Which formulas multiply by it, place by place?
#
# Nothing in the last four columns reaches a logit, so the gradient is 0 there. HiResCAM, LayerCAM, Integrated
# Gradients and SmoothGrad multiply by it place by place, and occlusion finds no difference. So all of them are 0
# in these columns, as they should be.
#
# Grad-CAM takes the *mean* gradient of a channel, and Grad-CAM++ another sum over all places. Each channel gets
# one weight, and it is multiplied by maps that are not 0 there. So both say that places count which cannot count.
# A mean over all places forgets where it came from. Nothing is lost only if the gradient is the same at every
# place, as with average pooling directly behind the maps (lesson 07).

# %% tags=["predict"]
predict("heat_behind_the_cut")

# %%
with net.features[16].register_forward_hook(cut):
    for name, method in by_name.items():
        heat = method(net, "features.10", image, cat).relu()
        print(f"{name:21}{heat[:, 10:].sum() / heat.sum():4.0%} of its positive part in the last four columns")

# %% tags=["why"]
why("heat_behind_the_cut")

# %% [markdown] tags=["more"]
# ### More: Exercise · A unit test for any method
#
# Make a tool of this: it should test a method that you do not know, on a network that you do not know.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. The network has to be cut while the method runs it. What stands between `later` and what comes after it?
# 2. A forward hook on `later` may return another output. Use its handle in a `with` block, and call the method inside
#    it.


# %% tags=["answer"]
def share_on_the_cut(method, model, later, keep, dead):
    """Return which share of the positive part of `method(model)` lies on the
    places `dead`, as a float, while a part of the network is cut off.

    `method(model)` runs the model and returns a map (h, w) with a sign. While it
    does, the output of the module `later` is multiplied by `keep`, which has zeros
    and ones. `dead`, (h, w) bool, marks the places of the map that can then reach
    no logit. A map without a value above 0 has the share 0.0. No hook is left, by
    whatever way the call ends.
    """
    ...


# %% tags=["check"]
check(share_on_the_cut)

# %% [markdown] tags=["instructor"]
# **Misconception:** "A method that passes the test is right." **Ask:** "What would an empty map score here?"
# **Answer:** 0, as well as the best. A unit test refuses what is wrong; it crowns nobody.
#
# **Misconception:** "Grad-CAM is broken, then." **Ask:** "For which heads is the mean of the gradient no loss?"
# **Answer:** for those that begin with average pooling: there the gradient is the same at every place (lesson 07).
#
# **Misconceptions, by exercise:** a hook that returns nothing cuts nothing; the map is cut instead of the network; the
# share of all values instead of the positive ones (3).

# %% [markdown]
# ## One table
#
# Now the real question: which method points best at what the answer rests on? You know how to prove what a network
# rests on, with pictures that differ in one thing. So the methods can be scored by a **proof**: for a network that
# takes the buoy for a fish, a good map shows the buoy, wherever the fish is. These rules hold for all methods:
#
# - **Networks:** of four kinds, which rest on the fish, the buoy, the stamp, and the buoy or the stamp. Five of each kind
#   were trained, each on other pictures and from another random start, for a shorter time than the networks A to D. (The
#   one of these four that rests on the buoy is the misled twin of lesson 07.)
# - **Truth:** 40 fresh pictures, with a fish, a buoy and a stamp in each. A picture counts for a network if the experiment
#   succeeds in this very picture: the answer is yes, it becomes no when only the causes are removed, and it is yes when
#   only the causes are added to the empty picture. The truth is where the first two pictures differ, and half a cell around.
# - **Same layer, sign, pooling and enlarging:** `features.10`, with two convolutions behind it; channels are added up,
#   the positive part counts, bilinear enlarging.
# - **Two scores:** is the hottest *point* on the truth? Which *share* of the positive part is on it? A map with nothing above
#   0 scores 0.
# - **Controls:** eight networks with random weights, the edges of the picture, and chance, which is the share of the
#   picture that the truth covers.
# - **Intervals:** 95%, for other networks from the same training, and for other pictures.
#
# The rules stand in a file together with the questions and the seeds, `course_utils/assets/evidence_plan.json`. It was
# committed before the first result, as the course's history shows, and its list `afterwards` has what was changed later.
# `make evidence` trains the networks and measures all of it in about half an hour. The next cells show what it recorded.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let the room find the rules before you show those of the lesson. Ask who has ever fixed the questions
# of a comparison before its first result, and how somebody else could check it.

# %% [markdown] tags=["sealed"]
# four kinds of networks, with two scores each, point and share. Which method is first in all eight columns?
#
# - [ ] Grad-CAM: It is the best known of them. Look at its share for the networks that rest on the buoy or the stamp.
#   > How many methods have a larger share than Grad-CAM for the networks that rest on the stamp?
# - [ ] Integrated Gradients: It has the best theory. Look at the networks that rest on one thing.
#   > For which kinds of networks does another method have a larger share than Integrated Gradients?
# - [ ] occlusion: It is an experiment and no gradient. Look at the networks that rest on the buoy or the stamp.
#   > An answer rests on two places, and each of them is enough. What does occlusion find when it covers one?
# - [x] none of them: The score decides, and so does what the network rests on.
#
# By the *share*, three methods come first: occlusion for the fish, HiResCAM for the buoy and for the stamp, SmoothGrad
# for the buoy or the stamp. By the *point*, LayerCAM is first for the fish and for the buoy or the stamp, Integrated
# Gradients for the buoy, and nearly all of them for the stamp. In none of the eight columns is the first better than the
# next by more than chance: each interval of their difference contains 0. So by the rule of the plan, none is first.
#
# And networks differ more than methods do. Five networks that rest on the buoy or the stamp give Grad-CAM shares from 36%
# to 66%. In one of them it would have come first, in another one last but one. The last table has the networks A to D
# themselves, one of each kind and not in this order: a table that is made with one network tells about this network.
#
# The controls: with random weights, no share is above 29% for the fish and above 16% for the others. But the point can
# be on the truth in up to 62% of the pictures, so a point in a single network says little. And look at the edges, which
# have seen no network: their hottest point is on the stamp in all 40 pictures. It has the sharpest edges, so there
# the point tells no method from a map that knows nothing.

# %% tags=["predict"]
predict("first_in_every_column")

# %%
tables = methods.read_evidence()
for name in ("share", "point"):
    methods.print_causes(tables["causes"], name)
    print()
methods.print_shipped(tables["causes"], "share")

# %% tags=["why"]
why("first_in_every_column")

# %% [markdown]
# Which differences are more than chance? The plan had named four pairs of methods before anything was measured, and it asked
# whether the first method of a column differs from the next. These are 20 intervals of 95%, so one of them can be expected
# to miss the 0 by chance alone.

# %%
methods.print_differences(tables["causes"], "share")

# %% [markdown]
# Two results hold in all four kinds. LayerCAM's share is smaller than HiResCAM's: it leaves out the gradient below 0, and
# with it what speaks against the fish at a place. And the table above shows that Grad-CAM++ has the smallest share of all.
# HiResCAM has more than Grad-CAM for the buoy and for the stamp. For the other two kinds, the interval contains 0.

# %% tags=["setup"]
stamped = add(add(add(fresh_pictures(1, seed=31), "fish"), "buoy"), "stamp")
one_of_four = load_picture_net(2)
methods.show_maps(
    stamped.images[0],
    {name: method(one_of_four, "features.10", stamped.images, blind.FISH) for name, method in by_name.items()},
    title="A network that rests on the stamp (outlined): two of its seven maps are bright far from it as well",
    truth=stamped.masks("stamp")[0],
)

# %% [markdown]
# ### What does the same layer mean?
#
# "At the same layer" sounds fair, and is not yet. What matters is what comes **behind** the layer. In EfficientNet-Lite0,
# two convolutions that mix places lie behind `blocks.5.2`, as behind `features.10` of our networks. None lies behind
# `blocks.6.0.bn2`: there, each place gives its part $f(A_p)$ to the logit without knowing its neighbours, and the logit is
# the mean of these parts. So the truth is known exactly, and no method is needed. The pictures are collages of two
# photographs, and the share is that in the correct half (the grid pointing game; chance is 50%).

# %%
methods.print_collages(tables["collages"])

# %% [markdown]
# The exact parts have 94% of their positive part in the correct half. Take from each of them the same number $f(0)$, what
# an empty place gives, and 68% are left. A **constant** that is spread over all places decides a quarter of the score.
# Integrated Gradients and occlusion start from zeros, so they show $f(A_p) - f(0)$ at best. HiResCAM and SmoothGrad have
# 4% and 23%: a gradient knows nothing of constants. So much of the right-hand column shows how a method treats a constant.
#
# It can even take the whole map away. For the military uniform an empty place gives 17, where the logits are below 4. So
# two of the twelve maps of $f(A_p) - f(0)$ have nothing above 0, and score 0. The same holds for three maps each of
# Integrated Gradients and occlusion, and for seven of Grad-CAM. Its other five lie wholly in the correct half.
#
# In the left-hand column the order is another one: Integrated Gradients comes first with 91%, and Grad-CAM last with 41%.
# Four photographs are too few for an interval. The table has the lowest and the highest mean of the four instead.

# %% [markdown] tags=["instructor"]
# **Misconception:** "The best method is the one with the best number." **Ask:** "Best for whom?" Somebody who looks
# for the one place to cover wants the hottest point. Somebody who reads the whole map wants the share.
#
# **Misconception:** "A method that scores well must have looked at the network." **Ask:** "What do the edges score,
# which have seen no network?"
#
# **For discussion:** why does an interval over 40 pictures of *one* network say too little? (Another training gives
# another network. The interval has to be as wide as the networks differ.)

# %% [markdown] tags=["more"]
# ### More: What the literature says
#
# Each line is one finding, where it comes from, and whether these worlds show it too. Most of the papers use photographs and
# much larger networks, so a "no" here does not refute them.
#
# | The finding | Its source | In these worlds |
# |---|---|---|
# | Some methods draw nearly the same map when the weights become random. | [Adebayo et al., 2018](https://arxiv.org/abs/1810.03292) | Yes for Guided Backprop, in lesson 06. Not for the seven methods: with random weights, their shares fall to 29% at most for the fish, and to 16% at most for the others. |
# | That test can be confounded by its task, so that failing it need not be the method's fault. | [Yona & Greenfeld, 2021](https://arxiv.org/abs/2110.14297) | Not tested. |
# | Maps without any information pass that test easily, so passing it ranks no methods. | [Binder et al., 2023](https://arxiv.org/abs/2211.12486) | Yes in its smallest case: an empty map passes the test of exercise {share_on_the_cut} as well. |
# | In a collage of pictures, the heat for a class should lie in the cell of its picture: the grid pointing game. | [Böhle et al., 2021](https://arxiv.org/abs/2104.00032) | Used, with two cells. The exact parts reach 94%, so 100% is not the right answer everywhere. |
# | Methods have to be compared at the same layer, and those that keep the gradient place by place find nothing where nothing can count. | [Rao et al., 2022](https://arxiv.org/abs/2205.10435) | Yes, both: see the cut, and how the order changes from layer to layer. |
# | HiResCAM shows only places that the network used, which Grad-CAM does not guarantee. | [Draelos & Carin, 2020](https://arxiv.org/abs/2011.08891) | Yes at the cut, exactly. Its share is larger than Grad-CAM's by more than chance for the buoy and for the stamp only. |
# | Grad-CAM++ is in practice Grad-CAM with positive gradients. | [Lerma & Lucas, 2022](https://arxiv.org/abs/2205.10838) | Not tested. It does have the smallest share in all four kinds, so it points no better here. |
# | A method whose parts add up, such as Integrated Gradients, can be no better than guessing about what a change would do. | [Bilodeau et al., 2024](https://arxiv.org/abs/2212.11870) | Not here: its share is far above that of random networks in all four kinds. The theorem is about the worst case. |
# | Smoothing a map over neighbouring places improves where it points. | [Rao et al., 2024](https://arxiv.org/abs/2303.11884) | Not tested. SmoothGrad takes a mean over noise instead, and its share differs by less than 2 points from that of HiResCAM, which has none. |
# | Pictures with something removed are unlike all pictures of the training, and the result depends on that. | [Hase et al., 2021](https://arxiv.org/abs/2106.00786) | Avoided in the truth, where a removed thing leaves no hole. Not in occlusion, which sets maps to 0. |
# | Remove what a map marks and train again: many methods are then no better than chance (ROAR). | [Hooker et al., 2019](https://arxiv.org/abs/1806.10758) | Not tested. It takes a training for each method. |
# | The shape of what was removed gives the class away, and blurred maps score better (the critique of ROAR). | [Rong et al., 2022](https://arxiv.org/abs/2202.00449); [Song et al., 2023](https://arxiv.org/abs/2304.13836) | Not tested. A proof by pictures that differ in one thing removes no marked pixels. |
# | Drawn worlds whose parts can be removed give a truth to compare with (FunnyBirds). | [Hesse et al., 2023](https://arxiv.org/abs/2308.06248) | Yes, it is the way of this lesson. |
# | A trained network need not use what its data was made for, so that the truth has to be built in. | [Zhang et al., 2023](https://arxiv.org/abs/2310.06514) | Yes: the experiment succeeded in 23 to 40 of the 40 pictures, depending on the network. So each picture is proved by itself. |
# | Maps show a misleading cue that can be seen and is suspected. They rarely reveal one that nobody thinks of. | [Adebayo et al., 2022](https://arxiv.org/abs/2212.04629) | The first, yes: Grad-CAM's hottest point is on the cue in 86% to 100% of the pictures. The second, both: the map of network F shows a cause that is on no list, that of network G does not. |
# | Attention alone explains a ViT's answer less well than a method that asks for the class. | [Chefer et al., 2021](https://arxiv.org/abs/2012.09838) | Yes in the smallest case: *Tokens*, below, has a clear attention map that moves nothing. |

# %% [markdown]
# ## What can be read at a layer?
#
# Maps explain an answer. Other methods ask what a **layer** holds. A **probe** is a small linear model that reads a
# property off a layer's activations. Nobody taught our networks what the background is: sky, water, grass, sand or a
# room. Can a probe read it at the last layer? Ours gets the **mean of each channel**, so it can only find what is left
# when the places are averaged. It learns on 450 pictures and is tested on 225.
#
# A probe may also learn by heart. So it gets a **control task** (Hewitt & Liang, 2019): each pair of things, such as cat
# and dog, gets a number from 0 to 4 by chance, and the probe has to read this number. The background's score minus that of
# the control is the probe's **selectivity**. The table has five networks that were trained for things, eight with random
# weights, and the score of always naming the commonest answer, which is chance here.

# %% [markdown] tags=["sealed"]
# a probe reads the background of new pictures off the trained networks. How well does it do at the same layer of
# networks with random weights?
#
# - [ ] no better than the commonest background: Random filters still respond to colours and edges, and
#   backgrounds differ in both.
#   > The sky is blue and the grass is green. Does a filter with random weights give the same number for both?
# - [ ] better than that, worse than with training: Training taught the network to tell things, whatever the
#   background is.
#   > A cat on grass and a cat in a room need the same answer. What will training do with the difference between the
#   > two?
# - [x] better than with training: Training for things throws away what does not help to tell them.
#
# The background is read from 96% of the new pictures with random weights, and from 53% with trained ones. The commonest
# background alone would be right in 23%. What does not help to tell things is harder to read behind the last layer, at
# least for a linear probe and from the means of the channels.
#
# The control shows the other side. With trained weights the probe reads an *arbitrary* number of the pair of things from
# 55% of the new pictures, because this layer knows the things. With random weights it reads 28%, as many as the commonest
# number has. So the selectivity is 68 points with random weights. With trained ones it is -2, and its interval contains 0:
# the background is read no better than a number that means nothing. The score of a probe says what is easy to read. It
# does not say what was learned, nor what is used.

# %% tags=["predict"]
predict("probe_of_a_random_network")

# %%
methods.print_probes(tables["probes"])

# %% tags=["why"]
why("probe_of_a_random_network")

# %% [markdown]
# ### Exercise · Take it away
#
# That something *can* be read does not mean that the network *uses* it. So take it away, and ask again. A property
# that a probe reads is a direction in the space of channels. This exercise removes one direction at every place.

# %% [markdown] tags=["sealed"]
# 2 points
# 1. How long is a vector's component along a direction of length 1? It is one number at each place.
# 2. With `unit = direction / direction.norm()`, the component's length is the sum of `output * unit` over the channels.
#    Give `unit` the shape (C, 1, 1) first.


# %% tags=["answer"]
def logits_without(model, layer, direction, images):
    """Return the logits of `model(images)` while the module `layer` hands on its
    maps (N, C, h, w) without what they have along `direction`, (C,).

    At every place, the maps are a vector of C numbers. Take from it its component
    along the direction, so that what is left is at right angles to it. The
    direction may have any length from 1e-14 to 1e14. No hook is left, by whatever way
    the call ends.
    """
    ...


# %% tags=["check"]
check(logits_without)

# %% [markdown] tags=["instructor"]
# **Misconception:** "The probe finds it, so the network knows it." **Ask:** "What did the network with random weights
# know?" **Answer:** nothing, and more could be read there.
#
# **Misconceptions, by exercise:** a direction that was not divided by its length; the mean over the places removed
# instead; the component kept instead of removed (4).

# %% [markdown]
# ## What none of them can tell you
#
# **1. What else would have been enough.** Here the logit is the larger of two places. Each of them is enough, so
# covering one of them changes nothing:

# %% [markdown] tags=["instructor"]
# **On this slide:** Give one of the four claims to each group, and let it say in one sentence what a map would have
# suggested instead. They are heard in turn, before the cells run.

# %%
either = nn.Sequential(nn.Identity(), nn.AdaptiveMaxPool2d(1), nn.Flatten())
two_causes = torch.tensor([[[[4.0, 0.0], [0.0, 4.0]]]])
print("logit", either(two_causes).item(), " occlusion", occlusion(either, "0", two_causes, 0, side=1).tolist())

# %% [markdown]
# **2. Compared with what.** Integrated Gradients and occlusion start from a baseline. All zeros is a choice, and the map
# follows it. The table of the collages showed it with numbers that are exact: what each place gives, $f(A_p)$, and what it
# gives beyond an empty place, $f(A_p) - f(0)$. Neither of the two is wrong. They answer different questions:

# %%
exact = tables["collages"]["none"]["methods"]
for name in ("f(A_p)", "f(A_p) - f(0)"):
    print(f"{name:14} {exact[name]['share']:.0%} of the positive part in the correct half")

# %% [markdown]
# **3. Whether the network uses what can be read.** At `features.10` a probe reads the background well. We take away
# the directions that this probe reads it from, and as a control five random ones:

# %% tags=["setup"]
album = methods.draw_album(135, seed=2000)
to_choose, to_test = slice(0, 90), slice(90, None)

# %%
maps, identity = methods.channel_means(net, "features.10", album.images), torch.eye(64)
directions = {"nothing": torch.zeros(64, 5), "random": torch.randn(64, 5, generator=torch.Generator().manual_seed(1))}
directions["background"] = methods.fit_probe(maps[to_choose], album.background[to_choose]).weight
for name, given in directions.items():
    keep = identity - given @ torch.linalg.pinv(given)
    new = album.images[to_test]
    logits, _ = run_with(lambda A, keep=keep: torch.einsum("cd,ndhw->nchw", keep, A), net, "features.10", new)
    right = ((logits > 0) == album.there[to_test]).all(1).float().mean()
    read = methods.fit_probe(maps[to_choose] @ keep, album.background[to_choose])
    found = (read(maps[to_test] @ keep) == album.background[to_test]).float().mean()
    print(f"without {name:11} new probe: {found:.0%} of the backgrounds; all answers right: {right:4.0%}")

# %% [markdown]
# A new probe still reads half of the backgrounds, so they were not taken away: other directions hold them, too. The
# answers stay as right as before, and the random control did a little better than no change. So this neither shows
# that the network uses the background, nor that it does not.
#
# **4. Which of two neighbours in a table is better.** One stands above the other in the mean. How wide is the
# interval of their difference?

# %%
for kind, found in tables["causes"].items():
    first = found["first"]["share"]
    mean, low, high = first["difference"]
    print(f"{kind:14} {first['method']} minus {first['next']}: {mean:+.0%}, interval {low:+.0%} to {high:+.0%}")

for name in ("Grad-CAM", "HiResCAM"):
    networks = tables["causes"]["buoy or stamp"]["methods"][name]["share"]["networks"]
    print(f"{name} on each network of buoy or stamp:", ", ".join(f"{share:.0%}" for share in networks))

# %% [markdown]
# Each of the four intervals contains 0. This table cannot say which of two neighbours is better, and with one network
# instead of five it would have said something else each time.
#
# And no map says *why* a place matters, or whether the answer is right. For that you change the world and ask again,
# as you did with the four networks.

# %% [markdown] tags=["more"]
# ### More: What to use at work
#
# ```python
# from captum.attr import LayerGradCam  # captum: attribution methods, tested and kept up to date
# heat = LayerGradCam(net, net.features[16]).attribute(image, target=cat)
#
# import quantus  # Quantus: many scores of explanations, side by side
# found = quantus.PointingGame()(model=net, x_batch=images, y_batch=targets, a_batch=maps, s_batch=masks)
#
# from nnsight import NNsight  # nnsight: read and change anything inside any model, as if it were a variable
# with (model := NNsight(net)).trace(image):
#     maps = model.features[16].output.save()
#
# from transformer_lens import HookedTransformer  # TransformerLens: language models with a named hook at every step
# model = HookedTransformer.from_pretrained("gpt2-small")
# logits, cache = model.run_with_cache("The cat saw the dog")
# ```
#
# None of them is needed for this course. What they build on, hooks and gradients, you know from the inside.

# %% [markdown] tags=["instructor"]
# **For the end:** let each learner write down one question about a network of their own, the experiment that would
# answer it, and the control. Three of them are read aloud. This is the last thing that they take home from the course.

# %% [markdown] tags=["more"]
# ## More: What does a channel want?
#
# Which channel of the last layer tells cars best?
# We choose it on 90 pictures, by how often it responds more to a picture with a car than to one without, and test it
# on 45 other pictures. Chance is 0.5. But the best of 96 channels, chosen for its score, is not picked by chance. The fair
# comparison is the best of 96 in networks with random weights, chosen and tested in the same way. We take three.

# %% [markdown] tags=["sealed"]
# in a network with random weights, we choose the best of 96 channels for cars. How good is it on the pictures that it
# was chosen on? (1 is perfect, 0.5 is a coin.)
#
# - [ ] about 0.5: A channel picked blindly has that. This one was chosen for its score.
#   > You throw 96 coins ten times each. How many heads does the best of them have?
# - [x] about 0.8: Among 96 random filters there is always one that responds more to cars, on these pictures.
# - [ ] about 1: That is what training brings.
#   > Nobody taught these filters what a car is. What else in a picture could make the best of them respond?
#
# It is 0.79 to 0.84 in these three, and 0.74 to 0.90 in twenty that we tried. On new pictures much of that is
# gone, or all of it, or nothing: from 0.29 to 0.88 in the twenty. So "I have found a channel that tells cars
# with 0.84" says nothing about training, and a single random network says little about chance.
#
# The trained network's best channel has 1.00 on both. Put the score of a chosen channel beside the best of as
# many by chance, on new pictures, and in more than one network.

# %% tags=["predict"]
predict("best_of_96")

# %%
models = {"trained ": net} | {f"random {seed + 1}": methods.randomise(net, seed) for seed in range(3)}
responses = {name: methods.channel_means(model, "features.16", album.images) for name, model in models.items()}
cars, favourites = album.there[:, car], {}
for name, found in responses.items():
    best = methods.tells(found[to_choose], cars[to_choose]).argmax().item()
    chosen, tested = (methods.tells(found[part], cars[part])[best] for part in (to_choose, to_test))
    print(f"{name} best channel: {chosen:.2f} where it was chosen, {tested:.2f} on new pictures")
    favourites[name.strip()] = best

# %% tags=["why"]
why("best_of_96")

# %% [markdown]
# What does this channel want to see? Start from grey noise, and let the *picture* learn: go up the gradient of the
# channel's mean, again and again. A hook catches the channel. The picture is moved by some pixels before each step,
# because otherwise fine noise would win (Olah et al., 2017).


# %%
def climb(model, layer, channel, dream, steps=24, rate=0.03):
    """Change a picture (1, 3, H, W) so that it excites a channel: up the gradient of the channel's mean."""
    rng, kept = torch.Generator().manual_seed(0), []
    with model.get_submodule(layer).register_forward_hook(lambda module, args, output: kept.append(output)):
        for _ in range(steps):
            dream = dream.detach().requires_grad_()
            model(dream.roll(torch.randint(-4, 5, (2,), generator=rng).tolist(), (2, 3)))
            (up,) = torch.autograd.grad(kept.pop()[:, channel].mean(), dream)
            dream = (dream + rate * up / (up.std() + 1e-9)).clamp(0, 1)
    return dream.detach()


# %%
grey = methods.grey_noise(SIZE)
channel = favourites["trained"]
dream = climb(net, "features.16", channel, grey)
real_ones = responses["trained "][:, channel]
most = real_ones.topk(3).indices
again = methods.channel_means(net, "features.16", dream)[0, channel]
print("a car in the three pictures that excite it most:", album.there[most, car].tolist())
print("the made picture excites it more than twice as much as the best of them:", bool(again > 2 * real_ones.max()))

# %% tags=["setup", "nbval-ignore-output"]
# Not compared: each step enlarges the rounding of the machine, so that the pattern differs in its details.
evidence.show_tiles(
    [draw_heat(each) for each in (dream[0], *album.images[most])],
    ["made for the channel", "excites it most", "second", "third"],
    title="The made picture excites the channel more than any of 135 drawn ones, and it looks like noise",
    alt="A pattern without any thing in it, beside three pictures with a car.",
)

# %% [markdown]
# The three drawn pictures each have a car. The made one has none: it looks like noise, and yet it excites the channel
# more than twice as much as any of the 135 pictures of the album does. So it shows what the channel responds to *most*,
# which is not what it *usually* sees. Always put such a picture beside real ones. (With large networks and more tricks
# the patterns can be recognised: see *Feature Visualization* at the end.)

# %% [markdown] tags=["instructor"]
# **Misconception:** "The made picture shows what the channel is for." **Ask:** "How large is its response beside that of
# the best drawn picture?" **Answer:** more than twice as large: it is something that no camera ever sees.

# %% [markdown] tags=["more"]
# ## More: Tokens
#
# A vision transformer has no feature maps. It cuts the picture into patches, and each patch becomes a **token**: a row
# of numbers in (N, tokens, channels). Grad-CAM only needs to know which token lies where, and `reshape` says it: move
# the values to (N, channels, h, w). With torchvision's ViT in torch's cache, the next cell takes it. Otherwise it
# takes a small block with two heads that were set by hand, and words instead of patches. It says which.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask which token lies where, and what `reshape` needs to know for it. If the weights of the ViT
# are not there, the words do as well: the question is the same.

# %% tags=["nbval-ignore-output"]
# Not compared: where the weights of the ViT are in the cache, the network is another one.
tokens = methods.find_tokens()
print(tokens.note)
with explain(tokens.model, tokens.image, tokens.layer, reshape=tokens.reshape) as run:
    heat = relu(run.grad_cam(tokens.target))[0]
tokens.show(heat)

# %% [markdown]
# With words, the map is easy to check: the logit counts how often "the" was said, and both places where it stands are
# hot, and no other. So `reshape` has put each token where it belongs.
#
# Many papers show attention instead, because it looks like an explanation: "this word looks at that one". So look at
# it, and then **patch** it. A pre-hook forces one head to look at nothing but the first token. If the
# head's map explains the answer, the answer has to move.


# %%
def force(head, heads, length):
    """A pre-hook: this head looks at the first token alone. The mask is added to its scores before the softmax."""
    mask = torch.zeros(heads, length, length)
    mask[head, :, 1:] = -torch.inf
    return lambda module, args, kwargs: (args, {**kwargs, "attn_mask": mask})


# %% tags=["nbval-ignore-output"]
# Not compared: where the weights of the ViT are in the cache, the network is another one.
with torch.no_grad():
    before, weights = tokens.model(tokens.image), tokens.attend()
    for head in range(2):
        with tokens.attention.register_forward_pre_hook(force(head, *weights.shape[:2]), with_kwargs=True):
            moved = (tokens.model(tokens.image) - before).abs().max().item()
        strongest = weights[head].max()
        print(f"head {head}: its strongest look has {strongest:.2f}; forced elsewhere, logits move by {moved:.2f}")

# %% [markdown]
# In the small block, both heads have equally clear maps, and one of them moves nothing: the weights behind it
# are 0. An attention map shows where values *come from*. It does not show what they are, nor whether anything reads
# them.

# %% [markdown] tags=["instructor"]
# **Misconception:** "The head looks at the noun, so it uses the noun." **Ask:** "What moves if it looks elsewhere?"
# **Answer:** for one of the two heads, nothing at all. Its values are multiplied by 0 behind the attention.
#
# **Question for the room:** "Which of your own figures would survive such a test?"

# %% [markdown]
# ## What my network saw
#
# You have asked many networks about pictures of the course. Here is everything about a picture of **your own**: what the real
# network says, its channels, its gradient, where it looks, one answer rather than another, and an experiment. Choose the
# picture in an explorer of lesson 05, 06 or 07 (*Your own picture*), or draw one in lesson 05 (*Draw one*). It stays for all
# lessons.

# %%
from course_utils.lessons.own_page import write_page

write_page()

# %% [markdown] tags=["instructor"]
# **On this slide:** Show one page, and read only the lines in grey, which say what one must not conclude. Photographs stay
# on each learner's computer: nobody has to show theirs.

# %% [markdown]
# ## What old tutorials say
#
# | They say | What is true today |
# |---|---|
# | Grad-CAM++ is the better Grad-CAM. | It depends on the score and the network; test it on a case whose truth you know. |
# | Choose the method whose map looks best. | Edges look good too, and know no network. Compare with controls, by one rule. |
# | A probe shows what the network knows. | It shows what can be read. Use a control task and a random network, and take it away. |
# | Attention is the explanation. | It shows where values come from. Patch it, and see whether the answer moves. |

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for a figure in a paper or a talk that they have believed because it looked right. Which of
# the four rows would have been the test for it?

# %% [markdown]
# ## Summary
#
# - A verdict needs an experiment: one thing changed, on many pictures, with a control.
# - A forward hook that exchanges the output, also for a larger batch, is enough for seven methods.
# - Where the truth is known, a method can be tested. A global mean of the gradient forgets where it came from.
# - One rule for all methods, fixed first, with the truth from a proof, with controls, and with intervals over networks and
#   pictures. The score, the layer and the network decide who wins.
# - What a channel wants, what a probe reads, and where a head looks are three more observations. None of them says
#   what is used.
#
# If you took [ten minutes](inventory.ipynb) before the course, take the other ten now.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for the difference between *can be read*, *is used*, *is enough* and *is needed*, each with
# the experiment that shows it. These four are what the course leaves behind.

# %% [markdown]
# ## Go further
#
# - Rao, Böhle & Schiele, [Towards Better Understanding Attribution Methods](https://arxiv.org/abs/2205.10435) (2022):
#   fair comparisons. More papers stand in the table of *What the literature says*.
# - Draelos & Carin, [Use HiResCAM instead of Grad-CAM](https://arxiv.org/abs/2011.08891) (2020); Sundararajan et al.,
#   [Axiomatic Attribution for Deep Networks](https://arxiv.org/abs/1703.01365) (2017).
# - Olah et al., [Feature Visualization](https://distill.pub/2017/feature-visualization/) (2017).
# - Hewitt & Liang, [Designing and Interpreting Probes with Control Tasks](https://arxiv.org/abs/1909.03368) (2019).
# - The libraries: [captum](https://captum.ai),
#   [Quantus](https://github.com/understandable-machine-intelligence-lab/Quantus), [nnsight](https://nnsight.net),
#   [TransformerLens](https://github.com/TransformerLensOrg/TransformerLens).

# %% [markdown] tags=["instructor"]
# **On this slide:** The last slide of the course. Let those who wrote a question down exchange addresses with
# somebody who has the same kind of data.
