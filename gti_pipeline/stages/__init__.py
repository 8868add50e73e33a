"""The stages as artifacts: each module reads its inputs' folders, calls the pure code, and writes its own folder.

A stage's content key covers its settings, its inputs' keys, and the source of its module with all it imports.
"""
