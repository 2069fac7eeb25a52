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
# | 58 to 66 | One table | the rules, from the room, before those of the lesson; one vote | the intervals of two pairs |
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

# %% tags=["parameters"]
pictures = 12  # that the methods are compared on, with two questions each
seed = 912  # of these pictures

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
from course_utils.vision.networks import load_classifier, load_picture_net
from course_utils.vision.patching import cells_of, patch
from course_utils.vision.pictures import draw_heat
from course_utils.vision.real import REAL, photograph
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
# function may ask a network about **four** albums only, say one as it was and three changed. The check takes some seconds.

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
    is asked about four albums at most, and no other network gives the same answers to
    all pairs.
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
# | SmoothGrad | Smilkov et al., 2017 | $\sum_k A_{kp}$ times the mean of $G_{kp}(A + \text{noise})$; the paper leaves the factor $A$ out |
# | Occlusion | Zeiler & Fergus, 2014 | $S(A) - S(A \text{ without } p)$ |
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
# The other three exchange the output for many versions of it: eight steps on the way from zero, eight noisy copies, or
# one copy for each window of about 2 x 2 places that is set to 0.


# %%
def integrated_gradients(model, layer, image, target, steps=8):
    t = (torch.arange(steps) + 0.5)[:, None, None, None] / steps
    way, G = look(model, layer, image, target, lambda A: t * A)
    return (G.mean(0) * way[-1] / t[-1]).sum(0)


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
net = load_picture_net()
cat, dog, car = (KINDS.index(kind) for kind in ("cat", "dog", "car"))
by_name = {
    "Grad-CAM": grad_cam,
    "HiResCAM": hires_cam,
    "LayerCAM": layer_cam,
    "Grad-CAM++": grad_cam_plus_plus,
    "Integrated Gradients": integrated_gradients,
    "SmoothGrad": smooth_grad,
    "occlusion": occlusion,
}
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
# share of all values instead of the positive ones (2).

# %% [markdown]
# ## One table
#
# Now the real question: which method points best at what the answer rests on? These rules were fixed before any of the
# numbers was looked at, and they hold for all:
#
# - **Same layer:** the last one with two convolutions behind it, `features.10` here and `blocks.6.0.bn2` in
#   EfficientNet-Lite0. (With no convolution behind it, most of the methods would give the same map.)
# - **Same sign, pooling and enlarging:** channels are added up, the positive part counts, bilinear enlarging.
# - **Two truths:** the masks of 12 drawn pictures with two questions each; and the correct half of six collages of two
#   photographs, also with two questions each (the grid pointing game).
# - **Two scores:** is the hottest *point* on the thing? Which *share* of the positive part is on it?
# - **Controls:** a random map, an even map, the edges of the picture, and each method on a network with random
#   weights.
# - **Intervals:** 95%, by drawing the *pictures* again with replacement (bootstrap), because two questions about one
#   picture are not independent. Of the six collages, each uses two of the same four photographs, so their intervals
#   are too narrow.

# %% tags=["setup"]
real = load_classifier(REAL)
random_net = methods.randomise(net)
rows = {**by_name, "(random map)": methods.random_map, "(even map)": methods.even_map}

# %% tags=["setup"]
worlds = {  # the second half of each network, and the questions as they stand there
    "drawn": (methods.second_half(net), methods.ask_pictures(net, pictures, seed)),
    "random": (methods.second_half(random_net), methods.ask_pictures(random_net, pictures // 3, seed)),
    "photos": (methods.second_half_of_real(real), methods.ask_collages(real)),
}

# %% [markdown] tags=["sealed"]
# drawn pictures and collages, with two scores each, point and share. Which method is first in all four columns?
#
# - [ ] Grad-CAM: It is the best known of them. Look at which columns it wins, and where it falls behind.
#   > In which of the four columns is Grad-CAM first? How many methods have a better point in the drawn pictures?
# - [ ] Integrated Gradients: It has the best theory. Look at its share.
#   > By the point in the drawn pictures, Integrated Gradients does come first. What does the share count that the point
#   > leaves out?
# - [ ] occlusion: It is an experiment and no gradient. Look at its hottest point.
#   > An answer rests on two places, and each of them is enough. What does occlusion find when it covers one?
# - [x] none of them: The score decides, and so does the network.
#
# By the hottest *point* in the drawn pictures, Integrated Gradients and SmoothGrad come first. By the *share*,
# Grad-CAM does, whose point is the worst but one. On new pictures, the difference of the shares stays. That
# of the points is half as large there, and its interval contains 0: what is looked at because it is large tends
# to shrink.
#
# Another reversal is far from chance. HiResCAM has a larger share than LayerCAM on the drawn pictures, and a much
# smaller one in the collages, where it is at 4% and an even map would have 50%. LayerCAM comes first there.
#
# One reason, which no cell here shows: behind this layer of EfficientNet, batch norm adds constants, and a
# gradient knows nothing of constants. So HiResCAM's numbers need not add up to the logit. (Their sum is -6 in
# the mean, for logits of about 4.) And the layer decides too: at the very last one, Grad-CAM had 94% of its heat
# in the correct half (lesson 07), and here it has 42%.
#
# The controls: with random weights, all methods fall to 14% or 15%, where an even map has 9%. That is one random
# network; five of them gave 6% to 23%. Edges have seen no network and reach 23%, more than Grad-CAM++. So a map
# that finds things may have found edges. There is no winner.

# %% tags=["predict"]
predict("first_in_every_column")

# %%
table = {
    name: {world: methods.score(method, *given) for world, given in worlds.items()} for name, method in rows.items()
}
table["(edges)"] = {world: methods.score_edges(questions) for world, (_, questions) in worlds.items()}
methods.print_table(table)

# %% [markdown]
# Are such differences more than chance? We compare two pairs of rows, picture by picture. The first pair was picked
# *because* the two differ so much in the table, and such differences shrink. So it has to prove itself on 20 new
# pictures.


# %%
def compare(words, one, other, groups):
    for name in ("point", "share"):
        difference = getattr(one, name) - getattr(other, name)
        low, high = methods.bootstrap(difference, groups)
        print(f"{words:22} {name} {difference.mean():+.0%}, interval {low:+.0%} to {high:+.0%}")


half, questions = worlds["drawn"]
fresh = methods.ask_pictures(net, 20, seed + 1)
print("Integrated Gradients minus Grad-CAM")
compare("  in the table", table["Integrated Gradients"]["drawn"], table["Grad-CAM"]["drawn"], pictures)
compare("  on 20 new pictures", *(methods.score(each, half, fresh) for each in (integrated_gradients, grad_cam)), 20)
print("HiResCAM minus LayerCAM")
for world, groups in (("drawn", pictures), ("photos", 6)):
    compare(f"  in the table, {world}", table["HiResCAM"][world], table["LayerCAM"][world], groups)

# %% tags=["setup"]
worst = min(range(2 * pictures), key=lambda n: sum(table[name]["drawn"].share[n].item() for name in by_name))
asked = worlds["drawn"][1][worst]
methods.show_maps(
    asked.picture,
    {name: method(worlds["drawn"][0], "start", asked.activation, asked.target) for name, method in by_name.items()},
    title=f"The worst of the {2 * pictures} questions: why {KINDS[asked.target]}? The outline is the thing",
    truth=asked.truth,
)

# %% tags=["why"]
why("first_in_every_column")

# %% [markdown] tags=["instructor"]
# **Misconception:** "The best method is the one with the best number." **Ask:** "Best for whom?" Somebody who looks
# for the one place to cover wants the hottest point. Somebody who reads the whole map wants the share.
#
# **Misconception:** "A method that scores well must have looked at the network." **Ask:** "What do the edges score,
# which have seen no network?" **Answer:** more than twice chance.
#
# **For discussion:** why is each picture drawn with both its questions? (If the picture is hard, both are.)

# %% [markdown]
# ## What can be read at a layer?
#
# Maps explain an answer. Other methods ask what a **layer** holds. A **probe** is a small linear model that reads a
# property off a layer's activations. Nobody taught our network what the background is: sky, water, grass, sand or a
# room. Can a probe read it at the last layer? It learns on 90 pictures and is tested on 45. Guessing blindly is right in
# 20% of these, and always naming the most frequent background among them is right in 29%.
#
# A probe may also learn by heart. So it gets a **control task** (Hewitt & Liang, 2019): each pair of things, such as
# cat and dog, gets a number from 0 to 4 by chance. And it gets a control network: the one with random weights.

# %% [markdown] tags=["sealed"]
# a probe reads the background of new pictures off the trained network. How well does it do at the same layer of the
# network with random weights?
#
# - [ ] at 20%, which is chance: Random filters still respond to colours and edges, and backgrounds differ in both.
#   > The sky is blue and the grass is green. Does a filter with random weights give the same number for both?
# - [ ] better than chance, and worse than with training: Training taught the network to tell things, whatever the
#   background is.
#   > A cat on grass and a cat in a room need the same answer. What will training do with the difference between the
#   > two?
# - [x] better than with training: Training for things throws away what does not help to tell them.
#
# The background is read from 84% of the new pictures with random weights, and from 31% with trained ones. Always
# naming the most frequent background is right in 29%, so the trained 31% is no more than chance. (In six random
# networks it was 84% to 91%.) What does not help to tell things is hard to read behind the last layer, at least for
# a linear probe.
#
# The control task says the same from the other side. With trained weights, the probe reads an *arbitrary* number
# of the pair of things from 51% of the new pictures, because this layer knows the things. With random weights it
# reads it from 22%, and always naming the most frequent number is right in 29%. This 22% is the lowest of six random
# networks: they had 22% to 40%. So the score of a probe says what is easy to read. It does not say what was
# learned, nor what is used. And compare its two columns: with 96 numbers for 90 pictures, the probe of the random
# network has learned much of the control by heart.

# %% tags=["predict"]
predict("probe_of_a_random_network")

# %% tags=["setup"]
album = methods.draw_album(135, seed=2000)
to_choose, to_test = slice(0, 90), slice(90, None)
means = {  # of each channel, for each picture
    name: methods.channel_means(model, "features.16", album.images)
    for name, model in {"trained": net, "random ": random_net}.items()
}

# %%
for name, features in means.items():
    for task, answers in {"background": album.background, "control   ": album.drawn}.items():
        read = methods.fit_probe(features[to_choose], answers[to_choose])
        known, new = ((read(features[part]) == answers[part]).float().mean() for part in (to_choose, to_test))
        print(f"{name} weights, {task}: {known:4.0%} of those it learned on, {new:4.0%} of new ones")

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
# instead; the component kept instead of removed (3).

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
# **2. Compared with what.** Integrated Gradients starts from a baseline. All zeros is a choice; the mean maps of all
# pictures are another one. The share on the thing follows the choice:

# %%
usual = torch.cat([each.activation for each in questions]).mean(0, keepdim=True)


def from_the_mean(model, layer, image, target, steps=8):
    t = (torch.arange(steps) + 0.5)[:, None, None, None] / steps
    _, G = look(model, layer, image, target, lambda A: usual + t * (A - usual))
    return (G.mean(0) * (image - usual)[0]).sum(0)


other = methods.score(from_the_mean, half, questions)
from_zero = table["Integrated Gradients"]["drawn"]
print(f"on the thing, from zero: {from_zero.share.mean():.0%}, from the mean: {other.share.mean():.0%}")

# %% [markdown]
# **3. Whether the network uses what can be read.** At `features.10` a probe reads the background well. We take away
# the directions that this probe reads it from, and as a control five random ones:

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
# **4. Which of two neighbours in a table is better.** HiResCAM stands above occlusion by its share. In how many single
# questions is it so? And how wide is the interval of the difference, with three pictures and with all of them?

# %%
difference = table["HiResCAM"]["drawn"].share - table["occlusion"]["drawn"].share
print(f"HiResCAM has the larger share in {(difference > 0).sum()} of {len(difference)} questions")
for count in (3, pictures):
    low, high = methods.bootstrap(difference[: 2 * count], count)
    print(f"HiResCAM minus occlusion, {count} pictures: {low:+.1%} to {high:+.1%}")

# %% [markdown]
# Both intervals contain 0. This table cannot say which of the two is better.
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
responses = {"trained ": means["trained"], "random 1": means["random "]}
for seed_of_weights in (1, 2):
    model = methods.randomise(net, seed_of_weights)
    responses[f"random {seed_of_weights + 1}"] = methods.channel_means(model, "features.16", album.images)
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
real_ones = means["trained"][:, channel]
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
# takes the block of lesson 08 whose attention was set by hand, and words instead of patches. It says which.

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
# it, and then **patch** it. A pre-hook forces one head to look at nothing but the first token (lesson 08). If the
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
# In the block of lesson 08, both heads have equally clear maps, and one of them moves nothing: the weights behind it
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
# - One rule for all methods, fixed first, with controls and intervals. The score decides who wins, and there are many
#   scores.
# - What a channel wants, what a probe reads, and where a head looks are three more observations. None of them says
#   what is used.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for the difference between *can be read*, *is used*, *is enough* and *is needed*, each with
# the experiment that shows it. These four are what the course leaves behind.

# %% [markdown]
# ## Go further
#
# - Rao, Böhle & Schiele, [Towards Better Understanding Attribution Methods](https://arxiv.org/abs/2205.10435) (2022):
#   fair comparisons.
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
