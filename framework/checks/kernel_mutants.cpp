// Mutants of the kernels that backward functions call: arithmetic, reductions, copies and products.
#include "bonsai/framework/checks/planting.h"

namespace bonsai {
namespace planting {

const KernelTable& real() {
  static const KernelTable table = kernels(Device{}, DType::f64);
  return table;
}

int64_t& calls() {
  static thread_local int64_t count = 0;
  return count;
}

namespace {

void copy(View x, MutView y) { std::copy_n(x.as<double>(), x.shape.elements(), y.as<double>()); }

// Elementwise kernels with a scalar argument.
void with_a_number(Mutants& all) {
  // dx = p x^(p - 1) dy
  add(all, &KernelTable::pow_backward, "p left out", [](View x, View dy, double p, MutView dx) {
    for (int64_t i = 0; i < dy.shape.elements(); ++i)
      dx.as<double>()[i] = std::pow(x.as<double>()[i], p - 1) * dy.as<double>()[i];
  });
  add(all, &KernelTable::pow_backward, "- 1 left out of the exponent",
      [](View x, View dy, double p, MutView dx) {
        for (int64_t i = 0; i < dy.shape.elements(); ++i)
          dx.as<double>()[i] = p * std::pow(x.as<double>()[i], p) * dy.as<double>()[i];
      });
  // dx = dy mask / (1 - p)
  add(all, &KernelTable::dropout, "1 / (1 - p) left out", [](View x, double p, RandomKey key, MutView y) {
    real().dropout(x, p, key, y);
    for (int64_t i = 0; i < x.shape.elements(); ++i) y.as<double>()[i] *= 1 - p;
  });
  add(all, &KernelTable::dropout, "mask left out", [](View x, double p, RandomKey, MutView y) {
    for (int64_t i = 0; i < x.shape.elements(); ++i) y.as<double>()[i] = x.as<double>()[i] / (1 - p);
  });
  add(all, &KernelTable::dropout, "another key", [](View x, double p, RandomKey key, MutView y) {
    real().dropout(x, p, {key.key + 1, key.counter}, y);
  });
}

void arithmetic(Mutants& all) {
  // y = factor x
  add(
      all, &KernelTable::scale, "factor left out", [](View x, double, MutView y) { copy(x, y); },
      "what is scaled is not used");
  // y += x
  add(all, &KernelTable::accumulate, "y left out: overwritten", [](View x, MutView y) { copy(x, y); });
  add(
      all, &KernelTable::accumulate, "x left out: never added", [](View, MutView) {},
      "what is added is zero");
  // y = a b, y = a / b; backward functions pass dy as a
  add(all, &KernelTable::mul, "b left out", [](View a, View, MutView y) { copy(a, y); });
  add(all, &KernelTable::div, "b left out", [](View a, View, MutView y) { copy(a, y); });
  // y = condition ? a : b
  add(all, &KernelTable::where, "condition turned round",
      [](View c, View a, View b, MutView y) { real().where(c, b, a, y); });
  // y = factor x, broadcast
  add(
      all, &KernelTable::expand, "factor left out", [](View x, double, MutView y) { real().expand(x, 1, y); },
      "the factor is 1");
  add(
      all, &KernelTable::expand, "index off by one",
      [](View x, double factor, MutView y) {
        real().expand(x, factor, y);
        std::rotate(y.as<double>(), y.as<double>() + 1, y.as<double>() + y.shape.elements());
      },
      "all of it is one number");
  // y = sum of the middle axis of (outer, n, inner)
  static constexpr auto sum = [](View x, double factor, MutView y, int64_t begin, int64_t left_out) {
    const int64_t outer = x.shape.dim[0], n = x.shape.dim[1], inner = x.shape.dim[2];
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        double total = 0;
        for (int64_t k = begin; k < n - left_out; ++k) total += x.as<double>()[(o * n + k) * inner + i];
        y.as<double>()[o * inner + i] = factor * total;
      }
  };
  add(all, &KernelTable::sum, "first term left out", [](View x, double f, MutView y) { sum(x, f, y, 1, 0); });
  add(all, &KernelTable::sum, "last term left out", [](View x, double f, MutView y) { sum(x, f, y, 0, 1); });
  // dx = dy where x = y, shared among ties
  add(all, &KernelTable::max_backward, "x = y left out", [](View x, View, View dy, MutView dx) {
    const int64_t n = x.shape.dim[1], inner = x.shape.dim[2];
    for (int64_t e = 0; e < x.shape.elements(); ++e)
      dx.as<double>()[e] = dy.as<double>()[e / (n * inner) * inner + e % inner];
  });
  add(
      all, &KernelTable::max_backward, "not shared among ties",
      [](View x, View y, View dy, MutView dx) {
        const int64_t n = x.shape.dim[1], inner = x.shape.dim[2];
        for (int64_t e = 0; e < x.shape.elements(); ++e) {
          const int64_t at = e / (n * inner) * inner + e % inner;
          dx.as<double>()[e] = x.as<double>()[e] == y.as<double>()[at] ? dy.as<double>()[at] : 0;
        }
      },
      "no two are equal");
  add(all, &KernelTable::max_backward, "given to the next element", [](View x, View y, View dy, MutView dx) {
    const int64_t n = x.shape.dim[1], inner = x.shape.dim[2];
    for (int64_t e = 0; e < x.shape.elements(); ++e) {
      const int64_t outer = e / (n * inner), k = e / inner % n, i = e % inner,
                    next = (outer * n + (k + 1) % n) * inner + i;
      const bool largest = x.as<double>()[e] == y.as<double>()[outer * inner + i];
      dx.as<double>()[next] = largest ? dy.as<double>()[outer * inner + i] : 0;
    }
  });
}

void comparing(Mutants& all) {
  // y = 1 where a > b, or a = b
  using kernel::Comparison;
  add(
      all, &KernelTable::compare, "operands swapped",
      [](View a, View b, Comparison holds, MutView y) { real().compare(b, a, holds, y); }, "all are equal");
  add(
      all, &KernelTable::compare, "equal counts as greater",
      [](View a, View b, Comparison holds, MutView y) {
        real().compare(a, b, holds == Comparison::greater ? Comparison::greater_equal : holds, y);
      },
      "no two are equal");
  add(
      all, &KernelTable::compare, "equal left out",
      [](View a, View b, Comparison holds, MutView y) {
        real().compare(a, b, holds, y);
        if (holds == Comparison::equal) std::fill_n(y.as<int32_t>(), y.shape.elements(), 0);
      },
      "no two are equal");
}

void along_an_axis(Mutants& all) {
  // y[k] = sum of x[j] for j <= k, or j >= k
  add(all, &KernelTable::cumulative_sum, "from the other end",
      [](View x, bool reverse, MutView y) { real().cumulative_sum(x, !reverse, y); });
  add(all, &KernelTable::cumulative_sum, "own element left out", [](View x, bool reverse, MutView y) {
    real().cumulative_sum(x, reverse, y);
    for (int64_t i = 0; i < x.shape.elements(); ++i) y.as<double>()[i] -= x.as<double>()[i];
  });
  // y[k] = x[index[k]], and x[index[k]] += y[k]
  static constexpr auto next = [](View index, int64_t n) {
    std::vector<int32_t> moved(index.as<int32_t>(), index.as<int32_t>() + index.shape.elements());
    for (int32_t& k : moved) k = static_cast<int32_t>((k + 1) % n);
    return moved;
  };
  add(all, &KernelTable::gather, "index off by one", [](View x, View index, MutView y, IndexError* error) {
    const std::vector<int32_t> moved = next(index, x.shape.dim[1]);
    real().gather(x, {moved.data(), index.shape, index.dtype}, y, error);
  });
  add(all, &KernelTable::scatter_add, "index off by one",
      [](View index, View y, MutView x, IndexError* error) {
        const std::vector<int32_t> moved = next(index, x.shape.dim[1]);
        real().scatter_add({moved.data(), index.shape, index.dtype}, y, x, error);
      });
  add(
      all, &KernelTable::scatter_add, "overwritten where an index comes again",
      [](View index, View y, MutView x, IndexError*) {
        const int64_t m = index.shape.dim[1], inner = index.shape.dim[2], n = x.shape.dim[1];
        for (int64_t at = 0; at < index.shape.elements(); ++at) {
          const int64_t row = at / (m * inner) * n + index.as<int32_t>()[at];
          x.as<double>()[row * inner + at % inner] = y.as<double>()[at];
        }
      },
      "no index comes again");
}

void moving(Mutants& all) {
  add(
      all, &KernelTable::fill, "1 for 0", [](MutView y, double) { real().fill(y, 1); },
      "all of it is written again");
  add(all, &KernelTable::permute, "index off by one", [](View x, kernel::Axes axes, MutView y) {
    real().permute(x, axes, y);
    std::rotate(y.as<double>(), y.as<double>() + 1, y.as<double>() + x.shape.elements());
  });
  // dst (+)= src, block by block
  add(
      all, &KernelTable::copy_blocks, "y left out: overwritten",
      [](const kernel::Blocks& b) {
        kernel::Blocks changed = b;
        changed.add = false;
        real().copy_blocks(changed);
      },
      "nothing is there to add to");
  add(all, &KernelTable::copy_blocks, "last block left out", [](const kernel::Blocks& b) {
    kernel::Blocks changed = b;
    --changed.outer;
    real().copy_blocks(changed);
  });
  add(all, &KernelTable::copy_blocks, "index off by one", [](const kernel::Blocks& b) {
    for (int64_t o = 0; o < b.outer; ++o)
      for (int64_t i = 0; i < b.inner; ++i) {
        double& to = static_cast<double*>(b.dst)[o * b.dst_stride + i];
        to = static_cast<const double*>(b.src)[o * b.src_stride + (i + 1) % b.inner] + (b.add ? to : 0);
      }
  });
}

void products(Mutants& all) {
  // C (+)= sum over k of A(i,k) B(k,j)
  add(all, &KernelTable::gemm, "last term of the inner sum left out", [](const kernel::Gemm& g) {
    kernel::Gemm changed = g;
    --changed.k;
    real().gemm(changed);
  });
  add(all, &KernelTable::gemm, "first term of the inner sum left out", [](const kernel::Gemm& g) {
    kernel::Gemm changed = g;
    --changed.k;
    changed.a.data = static_cast<const double*>(g.a.data) + (g.a.transposed ? g.a.ld : 1);
    changed.b.data = static_cast<const double*>(g.b.data) + (g.b.transposed ? 1 : g.b.ld);
    real().gemm(changed);
  });
  add(
      all, &KernelTable::gemm, "last entry of a summed batch axis left out",
      [](const kernel::Gemm& g) {
        kernel::Gemm changed = g;
        for (int axis = 0; axis < kernel::Gemm::kBatchAxes; ++axis)
          if (g.c_step[axis] == 0 && g.batch[axis] > 1) --changed.batch[axis];
        real().gemm(changed);
      },
      "no batch axis is summed");
  add(
      all, &KernelTable::gemm, "C left out: overwritten",
      [](const kernel::Gemm& g) {
        kernel::Gemm changed = g;
        changed.add = false;
        real().gemm(changed);
      },
      "nothing is there to add to");
  // y (+)= sum over rows
  add(all, &KernelTable::column_sums, "last row left out", [](View x, GradView y) {
    View fewer = x;
    fewer.shape = {x.shape.rows() - 1, x.shape[-1]};
    real().column_sums(fewer, y);
  });
  add(
      all, &KernelTable::column_sums, "y left out: overwritten",
      [](View x, GradView y) {
        real().column_sums(x, {y.data, false});
      },
      "nothing is there to add to");
}

}  // namespace
}  // namespace planting

int64_t planted_calls() { return planting::calls(); }

const std::vector<KernelMutant>& kernel_mutants() {
  static const std::vector<KernelMutant> table = [] {
    using namespace planting;
    real();  // must be initialized before a mutant is planted
    Mutants all;
    add_elementwise_mutants(all);
    with_a_number(all);
    arithmetic(all);
    comparing(all);
    along_an_axis(all);
    moving(all);
    products(all);
    add_row_mutants(all);
    return all;
  }();
  return table;
}

}  // namespace bonsai
