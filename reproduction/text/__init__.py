"""Texts: is the evidence of an answer found, and do the selected parts carry the output?"""
