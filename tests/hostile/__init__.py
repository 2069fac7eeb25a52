"""Submissions that attack, break or tire the grader: `answers` in a notebook in order, and `files` that are not.

All of it is bounded: some dozens of processes, memory and disk under the limits of the tests.
"""
