// Gathers rows of a table by id; the backward pass scatter-adds their gradients without atomics. It sorts
// positions by id, then adds the rows of dy of each id in order, in pieces of fixed size, so that a frequent
// id takes no longer than others.
#include "bonsai/framework/backend/cuda/loops.h"

namespace bonsai::cuda::BONSAI_LEVEL {
namespace {

constexpr int kPiece = 32, kAhead = 8;  // sorted positions that a thread sums, and that it reads at a time

__global__ void gather_rows(const real* table, const int32_t* ids, int64_t rows, int64_t n, real* y,
                            IndexError* index_error) {
  const int64_t i = blockIdx.x, id = ids[i];
  const bool known = id >= 0 && id < rows;
  if (!known && threadIdx.x == 0) report_index_error(index_error, 0, i, id, rows);
  for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
    y[i * n + j] = known ? table[id * n + j] : std::numeric_limits<real>::quiet_NaN();
}

// Counting sort, one warp per position. Fast up to 65,536 ids, and few ids suffice to fill the GPU.
__global__ void sort_ids(const int32_t* ids, int64_t count, int64_t* order, int32_t* sorted) {
  const int64_t i = Team<kWarp>::row();
  if (i >= count) return;
  const int32_t id = ids[i];
  int64_t before = 0;
  for (int64_t j = Team<kWarp>::lane(); j < count; j += kWarp)
    before += ids[j] < id || (ids[j] == id && j < i);
  before = warp_reduce(before, Sum{});
  if (Team<kWarp>::lane() != 0) return;
  order[before] = i;
  sorted[before] = id;
}

// The sorted ids, split into pieces. The sum of an id that is only in one piece is added to the table. The
// sum of an id that began in an earlier piece goes to the piece's head (row 2 * piece of `open`). The sum of
// an id that begins here and continues in the next piece goes to the piece's tail (row 2 * piece + 1).
struct Sorted {
  const int32_t* ids;
  int64_t count, rows, n;
  real *open, *table;

  __device__ bool has(int64_t position, int32_t id) const { return position < count && ids[position] == id; }
  __device__ void add_to_table(int32_t id, int64_t column, real sum) const {
    if (id >= 0 && id < rows) table[id * n + column] += sum;
  }
};

__global__ void add_pieces(Sorted s, const int64_t* order, const real* dy) {
  const int64_t blocks = (s.n + kBlock - 1) / kBlock, piece = blockIdx.x / blocks;
  const int64_t column = blockIdx.x % blocks * kBlock + threadIdx.x;
  if (column >= s.n) return;
  const int64_t begin = piece * kPiece, end = begin + kPiece < s.count ? begin + kPiece : s.count;
  bool head = begin > 0 && s.ids[begin - 1] == s.ids[begin];
  real sum = 0;
  for (int64_t first = begin; first < end; first += kAhead) {
    real d[kAhead];
    for (int k = 0; k < kAhead; ++k) d[k] = first + k < end ? dy[order[first + k] * s.n + column] : real(0);
    for (int k = 0; k < kAhead && first + k < end; ++k) {
      const int64_t at = first + k;
      const int32_t id = s.ids[at];
      sum += d[k];
      const bool goes_on = s.has(at + 1, id);
      if (goes_on && at + 1 < end) continue;
      if (head || goes_on)
        s.open[(2 * piece + (head ? 0 : 1)) * s.n + column] = sum;
      else
        s.add_to_table(id, column, sum);
      head = false;
      sum = 0;
    }
  }
}

// Adds the tail of a piece and the heads of the following pieces with the same id.
__global__ void join_pieces(Sorted s) {
  const int64_t blocks = (s.n + kBlock - 1) / kBlock, piece = blockIdx.x / blocks;
  const int64_t column = blockIdx.x % blocks * kBlock + threadIdx.x, end = (piece + 1) * kPiece;
  if (column >= s.n || end >= s.count) return;
  const int32_t id = s.ids[end - 1];
  const bool began_here = piece == 0 || s.ids[end - kPiece - 1] != id;
  if (!began_here || s.ids[end] != id) return;
  real sum = s.open[(2 * piece + 1) * s.n + column];
  for (int64_t next = piece + 1; s.has(next * kPiece, id); ++next) sum += s.open[2 * next * s.n + column];
  s.add_to_table(id, column, sum);
}

}  // namespace

void embedding(View table, View ids, MutView y, IndexError* index_error) {
  launch_rows(ids.shape.elements(), gather_rows, table.as<real>(), ids.as<int32_t>(), table.shape.dim[0],
              table.shape.dim[1], y.as<real>(), index_error);
}

void embedding_backward(View ids, View dy, int64_t rows, GradView dtable) {
  const int64_t count = ids.shape.elements(), n = dy.shape[-1], pieces = gpu::ceil_div(count, kPiece);
  const size_t bytes = static_cast<size_t>(rows * n) * sizeof(real);
  if (!dtable.add && bytes > 0)
    gpu::check(cudaMemsetAsync(dtable.data, 0, bytes, stream()), "cudaMemsetAsync");
  if (count * n == 0) return;
  Scratch order(count * static_cast<int64_t>(sizeof(int64_t))),
      sorted(count * static_cast<int64_t>(sizeof(int32_t)));
  Scratch open(2 * pieces * n * static_cast<int64_t>(sizeof(real)));
  launch_warps(count, sort_ids, ids.as<int32_t>(), count, order.as<int64_t>(), sorted.as<int32_t>());
  const Sorted s{sorted.as<int32_t>(), count, rows, n, open.as<real>(), dtable.as<real>()};
  const int64_t blocks = pieces * gpu::ceil_div(n, kBlock);
  launch_rows(blocks, add_pieces, s, order.as<int64_t>(), dy.as<real>());
  launch_rows(blocks, join_pieces, s);
}

}  // namespace bonsai::cuda::BONSAI_LEVEL
