// cuDNN's graphs of attention. It names axes batch, heads, positions, size, and takes any strides
// but for the log-sum-exps, which its backward pass reads packed before 9.26.
#include "kernels/cuda/cudnn_attention.h"

#include <cudnn_frontend.h>

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/swap_last_axes.h"

namespace headroom::kernels::cuda {

namespace {

namespace fe = cudnn_frontend;
using Symbol = std::shared_ptr<fe::graph::Tensor_attributes>;

/// What tells one plan from another's.
struct Problem {
  int64_t batch, queries, keys, heads, kv_heads, size;
  int64_t step;    // slots from one sequence's first key to the next one's
  int64_t window;  // 0: all are seen
  float scale;
  bool backward, repeatable;
  auto operator<=>(const Problem&) const = default;
};

Problem problem_of(const AttentionInputs& in) {
  const DenseKeys& keys = in.kv.dense;
  return {.batch = in.q.dim(0),
          .queries = in.q.dim(1),
          .keys = keys.length,
          .heads = in.q.dim(2),
          .kv_heads = in.kv.k.dim(1),
          .size = in.q.dim(3),
          .step = keys.step,
          .window = in.mask.window < keys.length ? in.mask.window : 0,
          .scale = static_cast<float>(in.scale),
          .backward = false,
          .repeatable = true};
}

/// Names of a graph's tensors.
enum Name : int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

using Pointers = std::unordered_map<int64_t, void*>;

/// A graph under construction.
class Attention {
 public:
  explicit Attention(const Problem& p) : p_(p), graph_(std::make_unique<fe::graph::Graph>()) {
    graph_->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  std::unique_ptr<fe::graph::Graph> forward() && {
    auto options = masked(fe::graph::SDPA_attributes());
    options.set_generate_stats(true);
    auto [out, lse] = graph_->sdpa(of_queries(kQ), of_keys(kK), of_keys(kV), options);
    queries_out(out, kOut);
    lse->set_output(true).set_uid(kLse).set_data_type(fe::DataType_t::FLOAT);
    lse->set_dim(lse_sizes()).set_stride(lse_strides());
    return std::move(graph_);
  }

  std::unique_ptr<fe::graph::Graph> backward() && {
    auto options = masked(fe::graph::SDPA_backward_attributes());
    options.set_deterministic_algorithm(p_.repeatable);
    const Symbol lse = graph_->tensor(fe::graph::Tensor_attributes()
                                          .set_uid(kLse)
                                          .set_data_type(fe::DataType_t::FLOAT)
                                          .set_dim(lse_sizes())
                                          .set_stride(lse_strides()));
    auto [dq, dk, dv] = graph_->sdpa_backward(of_queries(kQ), of_keys(kK), of_keys(kV),
                                              of_queries(kOut), of_queries(kDout), lse, options);
    queries_out(dq, kDq);
    keys_out(dk, kDk);
    keys_out(dv, kDv);
    return std::move(graph_);
  }

 private:
  using Sizes = std::vector<int64_t>;

  Sizes query_sizes() const { return {p_.batch, p_.heads, p_.queries, p_.size}; }
  Sizes query_strides() const {
    return {p_.queries * p_.heads * p_.size, p_.size, p_.heads * p_.size, 1};
  }
  Sizes key_sizes() const { return {p_.batch, p_.kv_heads, p_.keys, p_.size}; }
  Sizes key_strides() const {
    return {p_.step * p_.kv_heads * p_.size, p_.size, p_.kv_heads * p_.size, 1};
  }
  Sizes lse_sizes() const { return {p_.batch, p_.heads, p_.queries, 1}; }
  Sizes lse_strides() const { return {p_.heads * p_.queries, p_.queries, 1, 1}; }

  Symbol of_queries(Name name) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(name)
                              .set_dim(query_sizes())
                              .set_stride(query_strides()));
  }
  Symbol of_keys(Name name) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(name)
                              .set_dim(key_sizes())
                              .set_stride(key_strides()));
  }
  void queries_out(const Symbol& x, Name name) const {
    x->set_output(true).set_uid(name).set_dim(query_sizes()).set_stride(query_strides());
  }
  void keys_out(const Symbol& x, Name name) const {
    x->set_output(true).set_uid(name).set_dim(key_sizes()).set_stride(key_strides());
  }

  /// The causal mask ends at the last query and key; the window includes the own position, for
  /// cuDNN too: it shows key j to query i when j + window > i (utils/attn_score_modifiers.h).
  template <class Options>
  Options masked(Options options) const {
    options.set_attn_scale(p_.scale);
    if (p_.queries == p_.keys) {  // either corner; what is known to work is more with the first
      options.set_causal_mask(true);
    } else {
      options.set_causal_mask_bottom_right(true);
    }
    if (p_.window > 0) {
      options.set_sliding_window_length(static_cast<int>(p_.window));
    }
    return options;
  }

  Problem p_;
  std::unique_ptr<fe::graph::Graph> graph_;
};

void check_cudnn(cudnnStatus_t status, const char* what) {
  check(status == CUDNN_STATUS_SUCCESS, "[cuda] cuDNN: {} failed: {}", what,
        cudnnGetErrorString(status));
}

/// cuDNN and the plans made so far.
class Cudnn {
 public:
  Cudnn() {
    check_cudnn(cudnnCreate(&handle_), "starting");
    check_cudnn(cudnnSetStream(handle_, stream()), "choosing the stream");
    int device = 0;
    check_call(cudaGetDevice(&device), "asking for the GPU");
    check_call(cudaDeviceGetAttribute(&major_, cudaDevAttrComputeCapabilityMajor, device),
               "asking for the GPU's compute capability");
  }

  /// Runs the problem's plan; false: there is none.
  bool run(const Problem& p, Pointers& pointers) {
    const Plan& plan = plans_.find(p, [this](const auto& problem) { return make_plan(problem); });
    if (plan.graph == nullptr) {
      return false;
    }
    const Tensor workspace =
        Tensor::empty({plan.workspace}, DType::i8, Device{Device::Type::cuda, 0});
    auto result = plan.graph->execute(handle_, pointers, const_cast<void*>(workspace.raw()));
    check(result.is_good(), "[cuda] cuDNN: attention of {} queries and {} keys failed: {}",
          p.queries, p.keys, result.get_message());
    return true;
  }

 private:
  static constexpr size_t kMostPlans = 64;
  /// On Hopper and before, a backward pass that repeats keeps a number of bf16 for every query,
  /// head and key. This is enough for 32 sequences of 1024 tokens and 12 heads; past it our
  /// kernels, which keep no such thing, serve.
  static constexpr int64_t kMostWorkspace = int64_t{1} << 30;

  struct Plan {
    std::unique_ptr<fe::graph::Graph> graph;  // null: our own kernels serve
    int64_t workspace = 0;                    // bytes
  };

  Plan make_plan(const Problem& p) const {
    if (p.backward && p.repeatable && !cudnn_backward_repeats(major_, cudnnGetVersion())) {
      return {};
    }
    Plan plan;
    plan.graph = p.backward ? Attention(p).backward() : Attention(p).forward();
    if (plan.graph->build(handle_, {fe::HeurMode_t::A}).is_bad() ||
        plan.graph->get_workspace_size(plan.workspace).is_bad() ||
        plan.workspace > kMostWorkspace) {
      return {};
    }
    return plan;
  }

  cudnnHandle_t handle_ = nullptr;
  int major_ = 0;
  PlanCache<Problem, Plan, kMostPlans> plans_;
};

Cudnn& cudnn() {
  static auto* instance = new Cudnn;  // never destroyed: the driver may be gone before it
  return *instance;
}

/// cuDNN only reads what is const here, through pointers that don't say so.
void* pointer(const Tensor& x) { return const_cast<void*>(x.raw()); }

/// Where cuDNN writes a gradient of x's shape: over the memory that is to hold it, or beside it.
Tensor overwritten(const Into& into, const Tensor& x) {
  return into.wanted() && !into.add ? into.tensor : Tensor::empty(x.shape(), x.dtype(), x.device());
}

}  // namespace

bool cudnn_attention(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  const Problem p = problem_of(in);
  Tensor by_heads = Tensor::empty({p.batch, p.heads, p.queries}, DType::f32, lse.device());
  Pointers pointers = {{kQ, pointer(in.q)},
                       {kK, pointer(in.kv.k)},
                       {kV, pointer(in.kv.v)},
                       {kOut, pointer(out)},
                       {kLse, pointer(by_heads)}};
  if (!cudnn().run(p, pointers)) {
    return false;
  }
  swap_last_axes(by_heads, lse);
  return true;
}

bool cudnn_attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                              const Tensor& dout, const Into& dq, const Into& dk, const Into& dv,
                              bool repeatable) {
  Problem p = problem_of(in);
  p.backward = true;
  p.repeatable = repeatable;
  Tensor by_heads = Tensor::empty({p.batch, p.heads, p.queries}, DType::f32, lse.device());
  swap_last_axes(lse, by_heads);
  const Tensor own_dq = overwritten(dq, in.q), own_dk = overwritten(dk, in.kv.k),
               own_dv = overwritten(dv, in.kv.v);
  Pointers pointers = {{kQ, pointer(in.q)},    {kK, pointer(in.kv.k)},    {kV, pointer(in.kv.v)},
                       {kOut, pointer(out)},   {kLse, pointer(by_heads)}, {kDout, pointer(dout)},
                       {kDq, pointer(own_dq)}, {kDk, pointer(own_dk)},    {kDv, pointer(own_dv)}};
  if (!cudnn().run(p, pointers)) {
    return false;
  }
  for (const auto& [into, own] : {std::pair(&dq, &own_dq), {&dk, &own_dk}, {&dv, &own_dv}}) {
    if (into->wanted() && into->add) {
      CudaBackend().scale(*own, 1, *into);
    }
  }
  return true;
}

std::string cudnn_version() {
  const size_t version = cudnnGetVersion();  // 10000 major + 100 minor + patch
  return fmt::format(", cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace headroom::kernels::cuda
