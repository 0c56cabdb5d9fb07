"""The only folder that imports jaxlib: StableHLO text, devices, compiled programs and the call path.

Where things are: `native` imports jaxlib's compiled modules; `hlo` is the list of every StableHLO
operation (written in `hlo_*`); `client` puts, compiles and runs; `tree` owns the two C++ pytree
registries; `call` is the fast call path; `lazy` imports late; `gpu` loads the CUDA plugin.
"""
