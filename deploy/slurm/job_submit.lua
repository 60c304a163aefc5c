-- SPDX-License-Identifier: Apache-2.0
-- Slurm asks this before it queues a job. GPU memory asked for per node becomes a share per task, which Slurm keeps on
-- one card; a plain --gres=shard:40 may be split over two. What ConvGPU cannot hold to is refused with what to type.
-- GRANULE is the size of a shard in MiB, as `convgpu slurm setup` set it.
local GRANULE = 1024
-- The shards of the largest GPU that `convgpu slurm setup` knew; 0: not known.
local LARGEST = 0
-- Whether more is promised of a card than it has, so that a container may wait for another job's memory.
local OVERSUBSCRIBED = false

local FORMS = "write GPU memory as --gres=gpumem:20G (whole GiB), or as gpumem:20000M"

local function is_set(value, none)
  return value ~= nil and value ~= none and value ~= 0
end

-- shards of a word such as gpumem:20G or shard:20; nil for other words, false for a size that cannot be read
local function shards(word)
  local name, rest = string.match(word, "^g?r?e?s?/?(%a+)[:=](.+)$")
  if name == "shard" then
    return tonumber(string.match(rest, "^(%d+)$") or string.match(rest, "^%a[%w_%-]*:(%d+)$")) or false
  elseif name == "gpumem" then
    local count, unit = string.match(rest, "^(%d+)([GgMmTt]?)$")
    local size = tonumber(count)
    if size == nil or size == 0 then return false end
    if unit == "T" or unit == "t" then size = size * 1024 * 1024 end
    if unit == "G" or unit == "g" or unit == "" then size = size * 1024 end
    return math.ceil(size / GRANULE)
  end
  return nil
end

-- takes the share out of a list of resources: its shards or nil, the other words, false for a bad size
local function take_share(list)
  local rest, found = {}, nil
  for word in string.gmatch(list or "", "[^,]+") do
    local count = shards(word)
    if count == false then return nil, nil, false end
    if count then found = count else table.insert(rest, word) end
  end
  return found, table.concat(rest, ","), true
end

local function refuse(text)
  slurm.log_user("convgpu: %s", text)
  return slurm.ERROR
end

local function tasks_per_node(desc)
  return is_set(desc.ntasks_per_node, slurm.NO_VAL16) and desc.ntasks_per_node or 1
end

local function number_of_tasks(desc)
  if is_set(desc.num_tasks, slurm.NO_VAL) then return desc.num_tasks end
  local nodes = is_set(desc.min_nodes, slurm.NO_VAL) and desc.min_nodes or 1
  return nodes * tasks_per_node(desc)
end

function slurm_job_submit(desc, _partitions, _uid)
  local by_node, rest, readable = take_share(desc.tres_per_node)
  local by_task, task_rest, task_readable = take_share(desc.tres_per_task)
  if not (readable and task_readable) then return refuse(FORMS) end
  if take_share(desc.tres_per_job) or take_share(desc.tres_per_socket) then
    return refuse("ask for GPU memory by task: --gres=gpumem:20G, not by job or socket")
  end
  if by_node == nil and by_task == nil then return slurm.SUCCESS end
  if desc.array_inx ~= nil then
    return refuse("no job arrays with GPU memory: submit one job for each value, `for i in 1 2 3; do sbatch ...; done`")
  end
  if is_set(desc.het_job_offset, slurm.NO_VAL) then
    return refuse("no heterogeneous jobs with GPU memory: ask for one size on all nodes, -N 2 --gres=gpumem:20G")
  end
  if by_node and by_task then
    return refuse("ask for GPU memory by node (--gres) or by task (--tres-per-task), not by both")
  end
  if string.find((rest or "") .. "," .. (task_rest or ""), "gpu[:=]") then
    return refuse("ask for whole cards (--gres=gpu:2) or for memory of shared ones (--gres=gpumem:20G), not for both")
  end
  local count = by_node or by_task
  if LARGEST > 0 and count > LARGEST then -- Slurm refuses it itself, without saying what to type
    slurm.log_user("convgpu: no GPU here has %g GiB: type --gres=gpumem:%dM, or less", count * GRANULE / 1024,
      LARGEST * GRANULE)
  end
  if OVERSUBSCRIBED and number_of_tasks(desc) > 1 then
    return refuse("no gangs on shared cards here, where more is promised than the cards have: workers could wait for " ..
      "each other for ever. Ask for whole cards: --gres=gpu:2")
  end
  if by_task then
    desc.tres_per_task = "gres/shard:" .. by_task .. (task_rest ~= "" and "," .. task_rest or "")
    return slurm.SUCCESS
  end
  desc.tres_per_node = rest
  desc.tres_per_task = "gres/shard:" .. by_node
  desc.num_tasks = number_of_tasks(desc)
  slurm.log_user("convgpu: %g GiB of one GPU for each task", by_node * GRANULE / 1024)
  return slurm.SUCCESS
end

function slurm_job_modify(_desc, _record, _partitions, _uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
