"""Grading: submissions in, scores out, and the judge is not in the room. `README.md` beside this is the guide.

    python -m course_utils grade SUBMISSIONS [--roster CSV] [--report DIR] [--for canvas] [--lesson NN] …

1. `submissions`, `answers`: a submission is bytes. Only the *answers* are taken out of it, by the exercises' names,
   and with each the definitions that it needs (`definitions`). All else is ignored. The `roster` says who is missing.
2. `sandbox`: each answer runs by itself, on inputs from a secret seed, in a process that does not know the course's
   answers; beside it is the `driver`, which notes what it did. `evidence` reads those notes with suspicion.
3. `evidence`, `verdict`: the reference answers, run with the same seeds, are the key. Where no student's
   code ever ran, nbval compares evidence with key, and `exercises.judging` says in words what differs.
4. `report`: a row for each student and exercise, and for each file that is no lesson; pages; a gradebook. `resume`
   keeps what was graded. `grade` does all of it in a row.
"""
