package metrics

import (
	"slices"
	"strings"
)

// Definition says what a metric means.
type Definition struct {
	// Name is the name of one metric or, if it ends in a slash, the prefix of several.
	Name string
	Help string
	// Unit is empty for counts, fractions and what has none.
	Unit string
}

// Describe returns the definition of a name, or a general one for a name that is not in the catalogue.
func Describe(name string) Definition {
	best := Definition{Name: name, Help: "Reported by the environment or the trainer under this name."}
	length := 0
	for _, d := range Catalogue() {
		prefix := strings.HasSuffix(d.Name, "/")
		if (d.Name == name || prefix && strings.HasPrefix(name, d.Name)) && len(d.Name) > length {
			best, length = Definition{Name: name, Help: d.Help, Unit: d.Unit}, len(d.Name)
			if prefix {
				best.Help += " Here: " + strings.TrimPrefix(name, d.Name) + "."
			}
		}
	}
	return best
}

// Catalogue lists the metrics that a training run writes, in an order for reading.
func Catalogue() []Definition { return slices.Concat(quality(), data(), update(), machine()) }

func quality() []Definition {
	return []Definition{
		{Name: "reward/mean", Help: "Mean reward of all rollouts that have one, before any filter."},
		{Name: "reward/mean_trained", Help: "Mean reward of the rollouts that the update learned from."},
		{Name: "reward/min", Help: "Smallest reward of the step."},
		{Name: "reward/max", Help: "Largest reward of the step."},
		{Name: "reward/repo/", Help: "Mean reward of the rollouts at the tasks of a repository."},
		{Name: "tests/mutation_score", Help: "Mean fraction of wrong solutions that a task's tests reject, over the " +
			"rollouts with a reward. See docs/grading.md."},
		{Name: "tests/overfit", Help: "Fraction of sampled patches with a reward that fail the tests with other values in " +
			"them. See docs/grading.md."},
		{Name: "reward/", Help: "Spread of the rewards of the step."},
		{Name: "val/pass@1", Help: "Fraction of validation attempts that solve their task, mean over the tasks."},
		{Name: "val/pass@1_low", Help: "Lower end of the 95% interval of val/pass@1 (Wilson, over tasks)."},
		{Name: "val/pass@1_high", Help: "Upper end of the 95% interval of val/pass@1 (Wilson, over tasks)."},
		{Name: "val/pass@", Help: "Probability that one of so many attempts solves its validation task (unbiased estimate)."},
		{Name: "val/submitted_pass@1", Help: "Fraction of validation attempts that solve their task and submit."},
		{Name: "val/loss", Help: "Cross-entropy of the examples that are held out, in nats for each token."},
		{Name: "val/rows", Help: "Rows of the examples that are held out."},
		{Name: "val/random", Help: "What uniformly random valid moves reach on the validation tasks."},
		{Name: "val/failed", Help: "Validation attempts without a reward because of an infrastructure failure."},
		{Name: "val/turns", Help: "Mean turns of a validation rollout."},
		{Name: "val/stop/", Help: "Fraction of the validation rollouts that ended for a reason."},
		{Name: "val/tokens/", Help: "Mean tokens of a validation rollout, from the policy or from the environment."},
		{Name: "val/", Help: "The same of a further suite of validation tasks."},
		{Name: "groups/total", Help: "Groups of the step."},
		{Name: "groups/solve_none", Help: "Groups in which no rollout solved the task."},
		{Name: "groups/solve_partial", Help: "Groups in which some rollouts solved the task and some did not."},
		{Name: "groups/solve_all", Help: "Groups in which every rollout solved the task."},
		{Name: "groups/uniform", Help: "Groups of two or more whose rewards are all equal: they teach nothing."},
		{Name: "groups/singleton", Help: "Groups left with one member."},
		{Name: "groups/effective", Help: "Groups with an advantage that is not zero."},
		{Name: "groups/stuck", Help: "Share of the groups whose rollouts are the same, token for token, and solve nothing."},
		{Name: "groups/dropped", Help: "Groups dropped whole, after the filter."},
		{Name: "advantage/", Help: "Advantage of the trained rollouts."},
		{Name: "curriculum/unseen", Help: "Tasks of which no rollout was graded yet."},
		{Name: "curriculum/open", Help: "Tasks that are visited in every round."},
		{Name: "curriculum/parked_always", Help: "Tasks that are visited less often because all rollouts solve them."},
		{Name: "curriculum/parked_never", Help: "Tasks that are visited less often because no rollout solves them."},
		{Name: "curriculum/rate", Help: "Mean over the tasks of the running estimate of their solve rates."},
	}
}

func data() []Definition {
	return []Definition{
		{Name: "rollouts/total", Help: "Rollouts of the step."},
		{Name: "rollouts/no_reward", Help: "Rollouts without a reward because of an infrastructure failure."},
		{Name: "rollouts/not_graded", Help: "Rollouts that were not graded because the filter masks or drops them."},
		{Name: "rollouts/duplicates", Help: "Rollouts with the task, group and attempt of another one."},
		{Name: "rollouts/", Help: "Rollouts of the step, by how the batch used them."},
		{Name: "stop/", Help: "Fraction of the rollouts that ended for a reason."},
		{Name: "masked/", Help: "Fraction of the rollouts that ended for a reason and were masked for it."},
		{Name: "dropped/", Help: "Fraction of the rollouts that ended for a reason and were dropped for it."},
		{Name: "turns/", Help: "Turns of a rollout."},
		{Name: "length/", Help: "Tokens of a rollout, prompt and replies and observations together."},
		{Name: "tokens/sampled/", Help: "Tokens of a rollout that the policy wrote."},
		{Name: "tokens/environment/", Help: "Tokens of a rollout that came back from the environment."},
		{Name: "tokens/trained", Help: "Trained tokens of the step."},
		{Name: "tokens/trained_share", Help: "Fraction of the sampled tokens that belong to rows: not those of titles and " +
			"other auxiliary conversations, nor those that never reached the agent."},
		{Name: "conversations/", Help: "Mean conversations of a rollout of an agent that is not deepswe's, by what they are " +
			"for. Each begins a row, as far as it is learned from."},
		{Name: "tokens/truncated", Help: "Tokens cut off beyond the maximum length."},
		{Name: "tokens/sampled_ratio", Help: "Fraction of all tokens that the policy wrote."},
		{Name: "tokens/think_per_turn", Help: "Tokens of a reply before its action."},
		{Name: "rows/", Help: "Training rows."},
		{Name: "splits/", Help: "Turns that could not extend their row, by cause."},
		{Name: "staleness/mean", Help: "Mean age of the rollouts in policy versions."},
		{Name: "staleness/max", Help: "Greatest age of a rollout in policy versions."},
		{Name: "staleness/unknown", Help: "Rollouts whose policy version is not a number."},
		{Name: "staleness/", Help: "Rollouts by age in policy versions."},
		{Name: "think/", Help: "Mean tokens of a reply before its first action, by the tool of that action."},
		{Name: "tests/ran", Help: "Fraction of the rollouts in which the agent ran tests."},
		{Name: "tests/wrote", Help: "Fraction of the rollouts in which the agent wrote or changed tests."},
		{Name: "errors/format", Help: "Fraction of the replies that could not be read."},
		{Name: "errors/truncated_reply", Help: "Fraction of the replies that were cut off at their greatest length."},
		{Name: "errors/tool", Help: "Fraction of the tool calls that failed."},
		{Name: "errors/command_timeout", Help: "Fraction of the tool calls that ran out of time."},
		{Name: "retries/", Help: "Tries of the step's rollouts that failed, by what failed."},
		{Name: "rollout/", Help: "Mean over the rollouts of what the environment counts."},
	}
}

func update() []Definition {
	return []Definition{
		{Name: "sft/loss", Help: "Cross-entropy of the update's examples before it, in nats for each token."},
		{Name: "sft/epoch", Help: "How often the examples have been gone through."},
		{Name: "sft/rows", Help: "Rows of the update."},
		{Name: "imitation/loss", Help: "Cross-entropy of the demonstrations in a pass, in nats for each token."},
		{Name: "imitation/pass", Help: "Number of the pass over the demonstrations."},
		{Name: "policy/version", Help: "Version of the published policy after the step."},
		{Name: "loss/total", Help: "Loss of the step, summed over its updates."},
		{Name: "loss/kl_k1", Help: "Estimate k1 of KL(old policy, new policy) at the trained tokens."},
		{Name: "loss/kl_k3", Help: "Estimate k3 of KL(old policy, new policy) at the trained tokens."},
		{Name: "loss/clip_fraction", Help: "Fraction of the trained tokens whose ratio was clipped."},
		{Name: "loss/", Help: "Statistics of the loss."},
		{Name: "mismatch/", Help: "Sampler against trainer with the same weights, before the first update of the step."},
		{Name: "off_policy/", Help: "Sampler of the time against the trainer before the first update of the step."},
		{Name: "update/", Help: "Trainer before the first update of the step against the trainer after the last one."},
		{Name: "publish/gap_mean", Help: "Mean difference of sampler's and trainer's logprobs after the publication."},
		{Name: "publish/gap_max", Help: "Largest difference of sampler's and trainer's logprobs after the publication."},
		{Name: "samplers/ready", Help: "Servers that sample, at the end of the step."},
		{Name: "samplers/aside", Help: "Servers that did not answer and get no turns, at the end of the step."},
		{Name: "corrections/", Help: "What the corrections for mismatch did."},
		{Name: "entropy/mean", Help: "Mean entropy of the policy at the trained tokens, in nats."},
		{Name: "optim/grad_norm", Help: "Norm of the gradient before clipping, mean over the updates of the step."},
		{Name: "optim/lr", Help: "Learning rate."},
		{Name: "optim/updates", Help: "Optimizer steps taken in the step."},
		{Name: "optim/skipped", Help: "Optimizer steps skipped because the gradient was not finite."},
	}
}

func machine() []Definition {
	const seconds = "seconds"
	return []Definition{
		{Name: "time/step", Help: "Wall time of the step, without validation and saving.", Unit: seconds},
		{Name: "time/rollouts", Help: "Wall time of sampling.", Unit: seconds},
		{Name: "time/wait_rollouts", Help: "Time for which the update of the step waited for rollouts.", Unit: seconds},
		{Name: "time/wait_trainer", Help: "Time for which free workers had to wait for the trainer.", Unit: seconds},
		{Name: "time/rows", Help: "Wall time of advantages and rows.", Unit: seconds},
		{Name: "time/update", Help: "Wall time of forward, backward and optimizer.", Unit: seconds},
		{Name: "time/publish", Help: "Wall time of handing the weights to the sampler.", Unit: seconds},
		{Name: "time/imitation", Help: "Wall time of the imitation before the first step.", Unit: seconds},
		{Name: "time/evaluate", Help: "Wall time of the validation.", Unit: seconds},
		{Name: "time/model", Help: "Mean time of a rollout spent in calls of the model.", Unit: seconds},
		{Name: "time/environment", Help: "Mean time of a rollout spent in its environment.", Unit: seconds},
		{Name: "time/reward", Help: "Mean time of a rollout spent on its reward.", Unit: seconds},
		{Name: "time/queue", Help: "Mean time of a rollout spent waiting for a free place.", Unit: seconds},
		{Name: "time/other", Help: "Mean time of a rollout spent elsewhere: its records, and waiting for a processor.",
			Unit: seconds},
		{Name: "time/rollout", Help: "Mean time of a rollout.", Unit: seconds},
		{Name: "time/rollout/", Help: "Time of a rollout.", Unit: seconds},
		{Name: "workers/busy", Help: "Fraction of the workers' time in which they had a rollout."},
		{Name: "workers/idle", Help: "Fraction of the workers' time in which they had none."},
		{Name: "trainer/busy", Help: "Fraction of the step in which the trainer worked."},
		{Name: "trainer/waiting", Help: "Fraction of the step in which the trainer waited for rollouts."},
		{Name: "perf/tokens_per_second", Help: "Tokens of the step's rollouts, by the time of the step."},
		{Name: "perf/sampled_per_second", Help: "Tokens that the policy wrote, by the time of the step."},
		{Name: "perf/trained_per_second", Help: "Trained tokens, by the time of the step."},
	}
}
