#include "plan/kernel_form.h"

#include <algorithm>

namespace lora_bench {

KernelForm make_kernel_form(const Plan& plan, std::int64_t slots) {
  const auto groups = static_cast<std::size_t>(slots) + 1;
  KernelForm form;
  form.adapter_of_token = plan.adapter_of_token;
  form.token_order = plan.token_order;
  form.active_ids.assign(groups, -1);
  form.counts.assign(groups, 0);
  form.starts.assign(groups + 1, 0);
  form.no_adapter = plan.active() == 0;
  if (form.no_adapter) {
    return form;
  }
  std::rotate(form.token_order.begin(), form.token_order.begin() + plan.rows_with_adapter(),
              form.token_order.end());
  std::size_t group = 0;
  const auto add = [&](std::int32_t id, std::int32_t rows) {
    form.active_ids[group] = id;
    form.counts[group] = rows;
    form.starts[group + 1] = form.starts[group] + rows;
    ++group;
  };
  if (plan.rows_with_adapter() < plan.tokens()) {
    add(-1, static_cast<std::int32_t>(plan.tokens() - plan.rows_with_adapter()));
  }
  for (std::size_t i = 0; i < plan.active_ids.size(); ++i) {
    add(plan.active_ids[i], plan.group_starts[i + 1] - plan.group_starts[i]);
  }
  form.active = static_cast<std::int32_t>(group);
  return form;
}

std::int32_t captured_active(std::int32_t active, std::span<const std::int32_t> captured) {
  const auto enough = std::lower_bound(captured.begin(), captured.end(), active);
  return active == 0 || enough == captured.end() ? active : *enough;
}

}  // namespace lora_bench
