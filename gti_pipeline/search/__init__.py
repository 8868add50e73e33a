"""The search task (paper's industrial setting): query text to ranked items, judged good, maybe or not."""
