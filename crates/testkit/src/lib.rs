//! What tests share: the hash-LM executor, tiny models, a mock of vLLM.

pub mod hash_lm;
pub mod mock_vllm;
pub mod tiny_models;
