"""Texts: which words does a classifier or a language model use?"""
