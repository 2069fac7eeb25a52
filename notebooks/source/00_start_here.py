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
# # Start here
#
# A network sees a fish. It is sure, and it is right, and yet something is wrong. This course gives you the tools to find
# out what. Its one subject is **hooks**: small functions that you write, and that PyTorch calls while a network runs.
# Everything works offline and without a GPU.
#
# ## What you will be able to do
#
# - **Open** a case that stays with you up to lesson 10.
# - **Check** that this computer is ready, and repair what is not.
# - **Work** through a lesson: explore, predict, run, read why, answer.
# - **Read** what a check tells you, and ask for a hint.
#
# **Minutes:** counted by the build

# %% [markdown] tags=["instructor"]
# **Plan for 90 minutes**
#
# | Minutes | Sections | In the room | At home |
# |---|---|---|---|
# | 0 to 5 | A network that is sure | everybody presses the three buttons; suspicions at the board, none of them judged | nothing |
# | 5 to 7 | Is this computer ready? | everybody has run this before the session; you repair with the doctor's own sentences | installing, before the session |
# | 7 to 10 | How a lesson works | the prediction, by vote, even of those who know the answer; nobody is asked for a reason yet | nothing |
# | 10 to 17 | One exercise, together | exercise 1; read the wrong answer's outcome aloud, line by line | nothing |
# | 17 to 19 | The lessons · Your progress · Your case | show `progress.json`; whoever deletes it loses only the check marks | nothing |
# | 19 to 20 | Summary · Go further · Glossary | where the words are explained | reading the glossary |
#
# **Homework:** No exercise stays for home. The other 70 minutes of the session are for lesson 01.

# %% [markdown]
# ## A network that is sure
#
# The next cell is folded, because you need not read it. Click on it and press **Shift+Enter** to run it. If the course is
# installed, the cell has nothing to do. Otherwise it gets the course, or tells you how to get it.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask before anybody runs it: "Who sees no folded cell?" That is another front-end than JupyterLab.
# It works too: where it shows no buttons, the call `predict("name", answer)` commits. Then let everybody press the three
# buttons, and collect suspicions at the board. Nobody is right yet; leave the list there up to lesson 07.

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

# %% [markdown]
# Run the next cell as well. It shows a picture, and what a network answers to it. Then press *without the fish*, and *the
# fish alone*. (If an error comes up instead, go on: the next part says what is missing.)
#
# What may this network be looking at?

# %% tags=["explore"]
from course_utils.explorers import TheCase

TheCase()

# %% [markdown]
# Write your suspicion down, because **this is your case**. In the test that it was given, the network was nearly always right.
# Each lesson gives you one tool and, at its end, one clue. In lesson 10 you say what this network takes for a fish, and you
# prove it.

# %% [markdown]
# ## Is this computer ready?
#
# The next cell checks everything that the lessons need, and prints one line for each thing. If something is missing, its
# line tells you what to do. `doctor(details=True)` prints more.

# %%
from course_utils.lab.doctor import doctor

doctor()

# %% [markdown]
# ## How a lesson works
#
# 1. **Explore.** Many parts begin with sliders and switches, and with a question. Try until you know the answer. You cannot
#    break anything.
# 2. **Predict.** Before a surprising cell there is a question. Choose an answer and press *Commit*. You cannot change it
#    afterwards, and that is the point: if you were wrong, you will remember why.
# 3. **Run** the next cell and compare its output with your prediction. In JupyterLab, the output waits until you have
#    committed.
# 4. **Read why.** Below the output there is an explanation. It is sealed, and it opens by itself when you commit.
# 5. **Answer** the exercises. A check tells you what is wrong and for which input.
#
# Here is a prediction to try. Run the cells one after another, down to the explanation. (You can also do it with the
# keyboard: *Tab* takes you to the choices and to the button, the arrow keys choose, and *Enter* presses the button.)

# %% tags=["setup"]
from course_utils.exercises import check, hint, predict, progress, replay, solution, why
from course_utils.lessons.lesson_00 import largest

# %% [markdown] tags=["sealed"]
# x = 3 and y = x². After `y.backward()`, what is `x.grad`?
#
# - [ ] 3: That is the value of x. `.grad` holds the derivative of y with respect to x.
#   > Take y = 5 · x, with x = 3 again. If x grows by 1, does y grow by 3 or by another number?
# - [x] 6: The derivative of x² is 2x, and 2 · 3 = 6.
# - [ ] 9: That is the value of y. `.grad` holds the derivative of y with respect to x.
#   > Let x grow from 3 to 3.01. By how much does y grow, roughly, and how many times as much is this as 0.01?
#
# The gradient says how much $y$ grows when $x$ grows a little. Take $x = 3.01$: then $x^2$ is about $9.06$, so
# $y$ has grown by six times the $0.01$ that were added to $x$. `y.backward()` works this number out and stores
# it in `x.grad`.

# %% tags=["predict"]
predict("gradient_of_square")

# %%
import torch

x = torch.tensor(3.0, requires_grad=True)
y = x**2
y.backward()
print("x.grad =", x.grad.item())

# %% tags=["why"]
why("gradient_of_square")

# %% [markdown]
# The buttons need a running kernel. If you do not see them, `predict("gradient_of_square", 3)` commits to 3, for example.
#
# ## One exercise, together
#
# **The task:** return the largest number in a tensor, as a Python float. Here is what one learner wrote:

# %% [markdown] tags=["instructor"]
# **On this slide:** Let the room find the mistake before you read the outcome aloud. Most will look for a wrong
# number. Point at the first line, which says *type*: reading the outcome from the top is what this slide teaches.


# %%
def largest(tensor):
    """Return the largest number in `tensor`, which holds floats, as a Python float."""
    return tensor.max()


check(largest)

# %% [markdown]
# Read the outcome from the top. The first line says how the answer failed: it returned the wrong *type*. The second line
# shows the input, what the function returned, and what was expected. The third line names the likely cause.
#
# Now it is your turn. Replace the `...`, run the cell, and then run the check.

# %% [markdown] tags=["sealed"]
# 1 point
# 1. `tensor.max()` gives a tensor that holds one number. The task asks for the number itself.
# 2. `.item()` turns a tensor that holds one number into a Python number.


# %% tags=["answer"]
def largest(tensor):
    """Return the largest number in `tensor`, which holds floats, as a Python float."""
    ...


# %% tags=["check"]
check(largest)

# %% [markdown]
# If you are stuck, run `hint(largest)` in a new cell. Each call helps a little more. `solution(largest)`
# shows an answer after you have passed or after three attempts, and `solution(largest, now=True)` shows it at once.
# `replay(largest)` shows, step by step, what happens in your answer and in a right one, up to the first difference. After a
# pass, a question about your own code may follow.
#
# Three things are good to know:
#
# - **Run the answer cell before the check.** The check sees the function that was last *run*, not the text on the screen.
# - **Keep the name and the arguments** of the function. Everything inside is yours, and helper functions are welcome.
# - **You cannot break a lesson.** *Kernel → Restart Kernel and Run All Cells…* starts again, and your answers stay.

# %% [markdown] tags=["instructor"]
# **Misconception:** "The check reads what is written in my cell." **Ask:** "You corrected the answer and did not run the
# cell. What will `check(largest)` say?" **Expect:** "Right." **Answer:** what it said before: it sees the function that was
# last run. **Then show:** change the answer, run the check, run the answer, run the check again.
#
# **Misconception:** "`tensor.max()` is a number." **Ask:** "What does it print, and what is its type?" **Answer:** a tensor
# without dimensions. It prints like a number, and `.item()` makes one of it. This is why the first answer fails.
#
# **Prediction:** with x = 3 the gradient of x² is 2x = 6. Somebody who says 9 has taken the value for the gradient: **ask**
# "By how much does y grow if x grows by 0.01?" (0.06.)

# %% [markdown]
# ## The lessons
#
# Each lesson has a core of at most 75 minutes. Sections whose titles begin with *More* can wait.
# [Ten minutes of questions](inventory.ipynb), before lesson 01 and after lesson 10, show what changes.
#
# | | Lesson | You learn |
# |---|---|---|
# | 01 | [Tensor hooks](01_tensor_hooks.ipynb) | to see and to change a gradient on its way |
# | 02 | [retain_grad or a hook](02_retain_grad_or_hook.ipynb) | which to use when, and what it costs |
# | 03 | [Module hooks](03_module_hooks.ipynb) | to watch and to change any layer of a network |
# | 04 | [Inside a call](04_inside_call.ipynb) | what happens between `module(x)` and `forward`, line by line |
# | 05 | [Feature maps](05_feature_maps.ipynb) | to see what each layer makes of a picture |
# | 06 | [Guided Backprop](06_guided_backprop.ipynb) | to trace an answer back to the pixels, and to doubt the picture |
# | 07 | [CAM and Grad-CAM](07_cam_and_grad_cam.ipynb) | to see where a network looks, and to prove what its answer rests on |
# | 08 | [Hooks in practice](08_hooks_in_practice.ipynb) | to debug four broken networks, and to test what an answer depends on |
# | 09 | [Every hook](09_every_hook.ipynb) | to find any hook in a reference that runs, and to solve twelve puzzles |
# | 10 | [Where next](10_where_next.ipynb) | to investigate unknown networks, and to judge the methods themselves |
# | 11 | [A language model](11_language_model.ipynb) | to read, patch and steer a language model |

# %% [markdown] tags=["instructor"]
# **On this slide:** Say which lessons this class will take in the room and which at home. The guide for teaching has
# a calendar of six sessions, and a table of which lesson needs which.

# %% [markdown]
# ## Your progress
#
# The table has one row per lesson. It is kept in a small file beside your lessons. Delete `progress.json` and you lose only
# the check marks and your clues.

# %% [markdown] tags=["instructor"]
# **On this slide:** The table counts what is checked on this computer. Nothing of it is sent anywhere: somebody will
# ask.

# %%
progress()

# %% [markdown]
# ## Your case
#
# Your clues are kept in the same file, with what you make of them in your own words. Come back to this page after each
# lesson, and run the cell again.

# %% [markdown] tags=["instructor"]
# **On this slide:** Show the empty page and go on. In the last session, let two people compare the words that they wrote
# beside the same clue.

# %%
from course_utils.explorers.case import CasePage

CasePage()

# %% [markdown]
# ## Summary
#
# - `doctor()` tells you whether the computer is ready.
# - Explore, predict, run, read why, answer.
# - `check`, `hint` and `solution` take the function itself: `check(largest)`.

# %% [markdown] tags=["instructor"]
# **On this slide:** Ask for the five steps of a lesson, in order. The one that learners skip is to commit before they
# run, and the rest of the course depends on it.

# %% [markdown]
# ## Go further
#
# - Start with [Tensor hooks](01_tensor_hooks.ipynb).
# - [PyTorch's own introduction to autograd](https://pytorch.org/tutorials/beginner/blitz/autograd_tutorial.html), if
#   gradients are new to you.

# %% [markdown] tags=["instructor"]
# **On this slide:** Show how the next lesson is opened, and that all cells are run from the top. Whoever starts in
# the middle gets a `NameError`.

# %% [markdown] jp-MarkdownHeadingCollapsed=true
# ## Glossary
#
# Questions about hooks are answered in `course_utils/assets/questions.md`. If this list is folded, click below.

# %% glossary [markdown]
# **Activation**: the output of a layer for one input.
#
# **Activation patching**: running a network on one picture with a piece of what it computed for another one, to see whether
# the answer moves.
#
# **Attention**: for each word, how strongly it looks at every word: shares that add up to 1.
#
# **Attribution**: a number for each place or pixel that says how much it speaks for an answer.
#
# **Autograd**: the part of PyTorch that records operations on tensors and works out gradients.
#
# **Backward pass**: the walk from the result back to the leaves that works out every gradient; started by `backward()`.
#
# **Bootstrap**: an estimate of how far a mean could be off, made by drawing the same pictures again with replacement.
#
# **CAM** (class activation map): the last feature maps, weighted by how much the class uses each of them.
#
# **Clipping**: shortening a gradient whose norm exceeds a limit.
#
# **Computation graph**: the record of which tensor was computed from which, made while your code runs.
#
# **Control**: the same measurement where nothing should be found, so that one sees what chance or the method itself brings.
#
# **Dead unit**: a unit behind a ReLU that is 0 for every input, and so gets no gradient any more.
#
# **Detach**: `tensor.detach()` gives a tensor with the same memory that is not part of the graph.
#
# **Feature map**: one channel of a convolution's output: where the layer found what that channel looks for.
#
# **Forward pass**: the computation itself, from the input to the result.
#
# **Grad-CAM**: a CAM for any network; the weights are the means of a gradient.
#
# **Gradient**: how much the result changes when a tensor changes a little; a tensor of the same shape.
#
# **Handle**: what registering a hook returns; `handle.remove()` takes the hook away.
#
# **Hook**: a function of yours that PyTorch calls at an agreed moment, in a forward or a backward pass.
#
# **In place**: changing a tensor's numbers instead of making a new tensor: `x *= 2`, `x.mul_(2)`.
#
# **Kernel**: the Python process that runs the cells of a notebook.
#
# **Leaf**: a tensor at the edge of the graph: not the result of an operation that autograd recorded. Parameters are leaves.
#
# **Logit**: a network's raw score for a class, before softmax or sigmoid.
#
# **Module**: a building block of a network, an `nn.Module`: a layer, or a whole network.
#
# **Node**: one operation in the computation graph; in backward it turns the gradient of its output into those of its inputs.
#
# **Parameter**: a leaf tensor that belongs to a module and is trained.
#
# **Pre-hook**: a hook that runs before what it watches: before forward, or before a module's part of backward.
#
# **Probe**: a small linear model that reads a property off a layer's activations.
#
# **`requires_grad`**: whether autograd follows a tensor and computes a gradient for it.
#
# **`retain_grad()`**: asks a tensor that is not a leaf to keep its gradient in `.grad`.
#
# **Saliency**: how much each pixel, or each place, matters for an answer.
#
# **Saved tensor**: a tensor that an operation keeps from the forward pass because its backward will need it.
#
# **Sibling**: another input of the same operation; after an addition, siblings share one gradient tensor.
#
# **Token**: one of the rows of numbers that a transformer works on: a word, or a patch of a picture.
#
# **View**: a tensor without memory of its own: its numbers are in another tensor's memory.

# %% [markdown] tags=["instructor"]
# **On this slide:** Let each person find one word that they would have explained in another way, and read that entry
# only.
