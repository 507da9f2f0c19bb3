"""``stamp``: lists by token and region that know how far away a match can be.

Hu, Liu, Li, Feng, Tan: A location-aware publish/subscribe framework for parameterized
spatio-textual subscriptions, ICDE 2015. For subscriptions that score text and nearness.

- **SP, spatial-oriented prefix.** The tokens of a subscription are in a fixed order, the heaviest
  first. If a message shares none before a token, it shares at most the weight from there on, and a
  match is at most so far away: the *reach* of that token, perhaps infinite. Tokens with a reach are
  SIG, each in a list. A subscription that matches without a shared token is in the list of ``*``.
- **HI, hierarchical index.** Places are packed into leaf regions, and those into larger ones. Every
  region knows the largest reach of each token in it; a message outside opens it only if that is
  as long as the way to its box.
- **RP, region-aware prefix.** Postings that do not reach from their place to the border of their
  region are unmarked: messages outside do not read them.
- **ST, spatio-textual prefix.** Where one shared token is nowhere enough, the tokens behind SIG are
  further sets, one of which a match must share as well. A leaf reads the next set, or verifies
  its candidates, whichever should cost less.

A candidate is accepted by its first shared token only, so nothing is found twice::

    slot     | token | start | count |        a hash table of tokens
                         |
    entry    [ R1: reach | R3: reach | R4: reach | R2: reach ] ..    regions of a token, in preorder
    list         |          | start, marked, all
                 +- to R2   |
    posting          [ record, reach, place | .. | .. ]    by set, marked first, far reaches first
                        |
    record   [ place, p, q, D, row, W, tokens ] ..         a cache line each, leaf by leaf

The tables of the regions are turned round: what the paper keeps by region and token is kept here by
token and region, so that a message looks up each token once and goes through its regions in
memory order, skipping what is below a region that is too far away. Deleted subscriptions keep their
postings, with a threshold that no score reaches, until a quarter of their leaf is deleted. A leaf
that is full is cut in two; after as many changes as there are subscriptions, all is built again.

Where the print of the paper is wrong: bounds divide by delta and 1 - delta (here `need`, which does
not); a bound of a further set holds only while no more tokens are shared than it allows for; what
a message outside a region does not read of SIG belongs to the second set there.

For a million tweets, SP+HI and SP+RP+HI are the fastest; the latter is the default. Verifying is
one cache line, so that reading further sets costs more than the candidates that they save: ``cost``
takes two to three times as long, and SP without regions four to nine times.
"""

from nearcast.indexes.stamp.index import Stamp

__all__ = ["Stamp"]
