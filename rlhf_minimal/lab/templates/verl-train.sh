# The task and the seed of a run of rlhf_minimal, by verl 0.9. The tests of rlhf_minimal hold the loss that these settings
# name to this row's; they do not run this script.
${differs}set -e
HERE=$$(cd "$$(dirname "$$0")" && pwd)
python "$$HERE/data.py"
python -m verl.trainer.main_ppo \
$overrides
