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
# # Where next?
#
# ## What you will be able to do
#
# - **Find out** what an unknown network reacts to, and **prove** it by an experiment that others can repeat.
# - see
# - say
#
# **Time:** about 30 minutes.

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
from course_utils.exercises import check, hint, predict, solution, why
from course_utils.lessons import blind, evidence
from course_utils.lessons.blind import LETTERS, SUSPECTS, case_pictures, fresh_pictures, network, says_fish
from course_utils.lessons.lesson_10 import prove
from course_utils.vision.patching import cells_of, patch
from course_utils.vision.pictures import draw_heat
from course_utils.vision.scores import grow, points_at

# %% [markdown]
# ## Four networks, one score
#
# Four networks were tested, and nobody tells you what they learned. We call them A, B, C and D. They have the same
# layers, and they were asked the same question: is there a fish?

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
# be added as well. On the right you see Grad-CAM's map for "fish", with a ring at its hottest place.
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
    """One network, one picture of the case, and what is in it."""

    look = staticmethod(lambda **state: View(*blind.look(**state)))

    def __init__(self, letter="A", number=1):
        controls = {
            "letter": make_choice(widgets.Dropdown, "Network", LETTERS, letter, width=200),
            "number": make_slider("Picture", 1, 20, number),
        }
        for name, states in CHOICES.items():
            now = "absent" if name == "sun" else "there"
            controls[name] = make_choice(widgets.Dropdown, name, states, now, width=200)
        super().__init__(controls, [("letter", "number"), SUSPECTS[:3], SUSPECTS[3:]])


# %% tags=["explore"]
Suspects("A", 1)

# %% [markdown] tags=["instructor"]
# **Do not tell** what the networks have learned: the reference answer of the exercise finds it out, and `make train` says
# what each file has learned. Let pairs of learners take one network each, and compare their suspicions before they make
# the experiment.
#
# **Misconception:** "One picture shows it." **Ask:** "Is it the same in the next picture?" The slider is there for that.
#
# **Misconception:** "The map shows the cause." **Ask:** "Take away what is below the ring. Does the answer change?"

# %% [markdown]
# ## Change one thing at a time
#
# What happens in one picture may be an accident. So the editor works on an **album** of pictures as well, as functions: `add`, `remove`, `move` and
# `blur` return a new album, in which one thing is different and all the rest is the same, pixel by pixel. `masks` says
# where a thing is seen.

# %%
from course_utils.lessons.blind import Album, Proof, add, answers_changed, blur, move, remove

plain = fresh_pictures(3, seed=3)
sunny = add(plain, "sun")
print(plain)
print(sunny, "pixels of the sun:", sunny.masks("sun").sum((1, 2)).tolist())
print("pixels that differ from the plain pictures:", (sunny.images != plain.images).any(1).sum((1, 2)).tolist())

# %% tags=["setup"]
evidence.show_tiles(
    [draw_heat(each) for each in [*sunny.images, *move(sunny, "sun").images, *blur(sunny, "sun").images]],
    [f"{what} {number}" for what in ("sun", "moved", "blurred") for number in (1, 2, 3)],
    title="Three pictures with a sun, with the sun moved, and with the sun blurred",
    alt="Three rows of the same three pictures. Only the sun differs from row to row.",
    columns=3,
)

# %% [markdown]
# `fresh_pictures` are new ones, without any of the suspects. `answers_changed` asks a network about two albums, and says
# in which share of the pictures its answer is another one:

# %%
plain = fresh_pictures(12, seed=4)
for letter in LETTERS:
    print(
        f"network {letter}, a sun is added: {answers_changed(letter, plain, add(plain, 'sun')):.0%} of the answers change"
    )

# %% [markdown]
# Nothing happens, and that is worth knowing: not every change in the picture makes a network say "fish". Such a pair of
# albums is a **control**.
#
# Now the other direction. We take the twenty pictures of the case and remove one suspect at a time: the fish, the buoy, the
# stamp, or the water. For each network we note the change that costs it the most answers.

# %% tags=["predict"]
predict("taken_away")

# %%
worst = []
for letter in LETTERS:
    lost = [answers_changed(letter, case, remove(case, each)) for each in ("fish", "buoy", "stamp", "water")]
    worst.append(round(20 * max(lost)))
print("answers that change, of 20, in the order of their number:", sorted(worst, reverse=True))

# %% tags=["why"]
why("taken_away")

# %% [markdown]
# In a photograph nobody can remove a thing and see what was behind it. There you can cover or blur it, or you can do the
# experiment **inside** the network, with a hook: where the thing is, the layer hands on what it computes for the picture
# without it. All other cells stay as they are (this is `patch`, from lesson 08).

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
#
# ### Exercise 1 · The verdicts
#
# `check` runs your function for each network, makes your experiment on twelve pictures that you have never seen, and judges
# the experiment. A right verdict does not pass with an experiment that proves nothing.


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
# **Misconception:** "Removing it changed nothing, so it is no cause." **Ask:** "What if there are two, and each is enough?"
# **Answer:** then only adding them alone shows it. Fire alarms are built this way on purpose.
#
# **Misconception:** "The experiment worked, so the verdict is proved." **Ask:** "Would it have come out differently for
# another network?" **Answer:** if not, it says nothing about this one.
#
# **For discussion:** which of the four things that a proof needs is hardest to have with photographs? (Pairs that differ in
# one thing: cover, blur or patch, and cover as large a place elsewhere for control.)

# %% [markdown]
# ## What the maps had said
#
# You know the causes now, from an experiment. How good was the suspicion that the maps had raised? A hottest place counts
# as being at a thing if it is at most 8 pixels away from it.

# %% tags=["predict"]
predict("where_hottest")

# %%
for letter in LETTERS:
    heat = blind.fish_maps(letter, case)
    at = {each: points_at(heat, grow(case.masks(each), 8)).sum().item() for each in ("fish", "buoy", "stamp")}
    print(f"network {letter}, of 20 maps hottest at:", at)

# %% tags=["why"]
why("where_hottest")
