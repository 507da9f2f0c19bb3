"""Attacks on a server in another process, one after the other, and what each did to it.

    make attack                         all of them, in a few minutes
    make attack LONG=1                  the long form
    make attack ONLY=headers            one of them

While an attack runs, a process beside it asks ``/healthz`` every 20 ms and notes the memory of the
server. `judging` says what is allowed; `measuring` runs the server, `sending` the requests. The
attacks are in `strangers` (without a key), `callers` (with one), `receivers` (sockets that stay
open, and webhooks) and `generated`. All traffic is to 127.0.0.0/8.
"""
