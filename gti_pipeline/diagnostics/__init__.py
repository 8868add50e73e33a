"""What the rows of the new tokens are like: at their start, after grounding, after fine-tuning."""
