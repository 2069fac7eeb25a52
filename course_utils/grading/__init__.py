"""Grading: submissions in, scores out, and the judge is not in the room.

    python -m course_utils.grading SUBMISSIONS [--report DIR] [--lesson NN]

The rule, one module a step:

1. `collect`: a submission is bytes. Only the *answers* are taken out of it, by the exercises' names, and with each the
   definitions that it needs (`names`). Everything else in the file is ignored.
2. `run`: the answers go into a fresh notebook that papermill runs with a secret seed. Beside them in that process is
   the `driver`, which notes what each answer did. Only that *evidence* comes out, as JSON, and is read with suspicion
   (`records`).
3. `judge`: the reference answers, run in the same way with the same seed, are the key. Where no student's code ever
   ran, nbval compares evidence with key, and `course_utils.exercises.judging` says in words what differs.
4. `report`: a row for each student and exercise, and for each file that could not be read.

Points are all or nothing for an exercise; an exercise's points are its weight in the total.
"""
