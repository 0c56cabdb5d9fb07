"""A neural ODE of a spiking neuron, fitted through an adaptive solver that is one `while_loop`."""
