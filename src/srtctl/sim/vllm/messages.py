"""The messages of vLLM's native gRPC, package `vllm`, and of the standard health service."""

from __future__ import annotations

from srtctl.sim.protobuf import build

CONTROL, INFERENCE, HEALTH = "vllm.Control", "vllm.Inference", "grpc.health.v1.Health"
SERVING, NOT_SERVING = 1, 2
API_VERSION = "vllm"

MESSAGES = build(
    "vllm",
    {
        "GetServerInfoRequest": (),
        "ServerInfo": (
            *("1 string engine_version", "2 string api_version", "3 string instance_id"),
            *("4 ParallelismInfo parallelism", "5 uint32 max_model_len", "6 uint32 kv_block_size"),
            *("7 uint64 total_kv_blocks", "8 uint64 max_running_requests", "9 uint64 max_batched_tokens"),
            *("10 uint32 max_loras", "14 ?uint64 effective_attention_block_size"),
        ),
        "ParallelismInfo": (
            *("1 uint32 tensor_parallel_size", "2 uint32 pipeline_parallel_size", "3 uint32 data_parallel_size"),
            *("4 uint32 data_parallel_rank", "5 uint32 decode_context_parallel_size", "6 uint64 world_size"),
            "7 uint32 data_parallel_size_local",
        ),
        "GetModelInfoRequest": (),
        "ModelInfo": (
            *("1 string model_id", "2 string served_model_name", "3 *string served_model_aliases"),
            *("20 bool supports_text_input", "21 bool supports_token_ids_input", "22 bool supports_lora"),
            *("23 bool supports_multimodal", "24 string reasoning_parser", "25 string tool_call_parser"),
        ),
        "AbortRequest": ("1 *string request_ids",),
        "AbortResponse": (),
        "ListLorasRequest": (),
        "ListLorasResponse": ("1 *LoraAdapter adapters",),
        "LoraAdapter": ("1 int64 lora_id", "2 string lora_name", "3 string source_path"),
        "GetKvEventSourcesRequest": (),
        "GetKvEventSourcesResponse": ("1 *KvEventSource sources",),
        "KvEventSource": (
            *("1 string transport", "2 string endpoint", "3 string topic", "4 string replay_endpoint"),
            *("5 ?uint32 data_parallel_rank", "6 string encoding", "7 uint32 schema_version", "8 uint32 buffer_steps"),
            *("9 uint32 hwm", "10 uint32 max_queue_size"),
        ),
        "TokenIds": ("1 *uint32 ids",),
        "GenerateRequest": (
            *("1 string request_id", "2 string model", "3 oneof:prompt:string text"),
            *("4 oneof:prompt:TokenIds token_ids", "5 ?float temperature", "8 StoppingCriteria stopping"),
            *("9 ResponseOptions response", "10 KVCacheParameters kv", "12 int32 priority", "13 ?string session_id"),
            "15 string lora_name",
        ),
        "StoppingCriteria": (
            *("1 uint32 max_new_tokens", "2 uint32 min_new_tokens", "3 *uint32 stop_token_ids"),
            *("4 *string stop_strings", "5 bool include_stop_strings", "6 bool ignore_eos"),
        ),
        "ResponseOptions": ("4 ?bool output_text", "5 bool output_token_ids", "6 bool output_logprobs"),
        "KVCacheParameters": (
            *("1 bool bypass_prefix_cache", "2 string cache_salt", "3 Struct kv_transfer_params"),
            "4 Struct ec_transfer_params",
        ),
        "GenerateResponse": ("1 ?PromptInfo prompt_info", "2 SequenceOutput outputs"),
        "PromptInfo": ("1 uint32 num_prompt_tokens", "2 *uint32 token_ids"),
        "SequenceOutput": (
            *("1 uint32 index", "2 string text", "3 uint32 num_tokens", "4 *uint32 token_ids", "5 *float logprobs"),
            *("6 *uint32 ranks", "8 ?FinishInfo finish_info"),
        ),
        "FinishInfo": (
            *("1 uint32 num_output_tokens", "2 FinishReason finish_reason", "3 oneof:stop:uint32 stop_token_id"),
            *("4 oneof:stop:uint32 eos_token_id", "5 oneof:stop:string stop_string", "6 Struct kv_transfer_params"),
        ),
    },
    enums={"FinishReason": {"NOT_FINISHED": 0, "LENGTH": 1, "STOP": 2, "ABORTED": 3}},
)
HEALTH_MESSAGES = build(
    "grpc.health.v1",
    {"HealthCheckRequest": ("1 string service",), "HealthCheckResponse": ("1 ServingStatus status",)},
    enums={"ServingStatus": {"UNKNOWN": 0, "SERVING": SERVING, "NOT_SERVING": NOT_SERVING, "SERVICE_UNKNOWN": 3}},
)
#: RPCs whose messages are not named after them.
NAMES = {
    "GetServerInfo": ("GetServerInfoRequest", "ServerInfo"),
    "GetModelInfo": ("GetModelInfoRequest", "ModelInfo"),
    "GenerateStream": ("GenerateRequest", "GenerateResponse"),
    "Check": ("HealthCheckRequest", "HealthCheckResponse"),
}
