"""What is the same for everyone in a process: the global state of torch and of Python, and of numpy and matplotlib.

An answer has to leave it as it was. `watch` sees to it; the other modules say what there is, how it is read, and how it
is set.

What an honest answer changes by the way is put back as well, but not named: random numbers, and what an import changes.
Not looked at is what cannot be put back (the number of threads between operations, operators registered in torch), and
that on which no exercise depends (how files are loaded, how processes are started, the settings of torch's compiler but
for its stance and its backend).
"""
