"""The caller's model at arm's length: a copy in eval mode, faster copies, fingerprints, assets."""
