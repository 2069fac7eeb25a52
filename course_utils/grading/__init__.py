"""Grading: submissions in, scores out, and the judge is not in the room.

    python -m course_utils.grading SUBMISSIONS [--roster CSV] [--report DIR] [--lesson NN] [--scheduler ADDRESS]

The rule, and which module keeps it:

1. `submissions`, `collect`: a submission is bytes. Only the *answers* are taken out of it, by the exercises' names, and
   with each the definitions that it needs (`course_utils.grading.definitions`). Everything else in the file is ignored.
2. `crew`, `forking`, `host`, `sandbox`: each answer runs by itself in a sandbox, on inputs from a secret seed, in a
   process that does not know the course's answers (`bare`). Where there is no fork, `kernel` does it, slowly. Beside
   the answer is the `driver`, which notes what it did. Only that *evidence* comes out, as JSON, read with suspicion
   (`run`, `records`).
3. `judge`: the reference answers, run by papermill with the same seeds, are the key. Where no student's code ever ran,
   nbval compares evidence with key, and `course_utils.exercises.judging` says in words what differs.
4. `report`, `pages`: a row for each student and exercise, and for each file that could not be read; a page for each
   student and one for the class. `resume` keeps what was graded, `weights` is a template for marks, `bench` measures.

Points are all or nothing for an exercise; an exercise's points are its weight in the total.
"""
