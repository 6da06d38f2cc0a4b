"""Tables: one mask for the columns of a whole data set, G(S) = −loss(y, f(X_S; θ)).

batches → where the data comes from, in which order and whose share it is; networks → how a mask
reaches a model's columns; losses; objective → the set function that the core selects for.
"""
