//! What tests share: the hash-LM executor, tiny models, a mock of vLLM, a real Redis.

pub mod hash_lm;
pub mod mock_vllm;
pub mod redis_server;
pub mod tiny_models;
