"""Submissions that attack, break or tire the grader. All of it is bounded: some dozens of processes, memory, disk."""
