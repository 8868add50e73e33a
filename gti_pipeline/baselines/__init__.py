"""What every arm must be compared with: popularity, repetition, neighbours, factorisation, and a sequence model.

One pure function per module. Each learns from training events alone, is asked for users' histories, and ranks the whole
catalogue: `schemas.RECOMMENDATIONS` with distinct items of the catalogue, ties by item id. Items of the history are
not filtered out, as for the arms, except where a method says so.
"""
