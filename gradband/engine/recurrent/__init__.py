"""An LSTM forward and back through all rounds, as code for a CPU's vector units.

Start with `forward`, then `backward`; `vectors` writes their instructions, and `kernel` compiles and calls
them.
"""
