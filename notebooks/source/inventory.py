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
# # Ten minutes that show it
#
# Twelve questions on hooks: once before the course, and once after it with other programs. Each question has two parts. What
# does a short program print, and why? Nobody gives you points for it, and nothing is sent. It shows you what has changed.
#
# Work out each answer in your head, and do not run the programs. Where you do not know, say so: a guess would only hide
# what the course can do for you. You can stop at any time, and go on later with the question where you stopped.
#
# What was right is said when both parts are done, because the questions after the course are much like those before it.
#
# In a class, run the line with `join` that your instructor shows in a cell of this notebook, too. Then the class is told how
# many answers you had right, and nothing more.

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
from course_utils.lessons.inventory import compare, take

# %% [markdown]
# ## Before the course

# %%
take("before")

# %% [markdown]
# ## After the course
#
# You can answer these as soon as you have worked through lessons 01 to 06. Lesson 10 brings you back here.

# %%
take("after")

# %% [markdown]
# ## Before and after, side by side

# %%
compare()
