"""Training code for the bundled draft/target pair, in the order in which the data passes:

clean -> chat -> tokenizer -> data -> model -> optim -> train -> write -> distil -> judge, export -> evaluate, to_hf, goldens, compare
"""
