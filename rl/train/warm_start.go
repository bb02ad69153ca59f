package train

import (
	"context"
	"maps"

	"deepswe/rl/metrics"
)

// warmStart lets the trainer learn from demonstrations. Its points are those of the steps before 0, one for each
// pass; the first one has the validation of the fresh policy, if that is measured before training.
func (l *loop) warmStart(ctx context.Context) error {
	if l.trainer.WarmStart == nil {
		return nil
	}
	start := l.now()
	if err := l.publish(ctx); err != nil {
		return err
	}
	fresh := l.policy
	losses, err := l.trainer.WarmStart(ctx)
	if err != nil || len(losses) == 0 {
		return err
	}
	seconds := l.now().Sub(start).Seconds()
	for i, loss := range losses {
		step := i - len(losses)
		values := map[string]float64{"imitation/loss": loss, "imitation/pass": float64(i + 1)}
		if i == 0 && l.due(0) && l.validator == nil {
			measured, err := l.validate(ctx, step, fresh, l.config.Rollouts.Workers)
			if err != nil {
				return err
			}
			maps.Copy(values, measured)
		}
		if i == len(losses)-1 {
			values["time/imitation"] = seconds
		}
		if err := l.emit(metrics.Point{Step: step, Time: l.now(), Values: values}); err != nil {
			return err
		}
	}
	l.log.Info("imitated the demonstrations", "passes", len(losses), "loss", losses[len(losses)-1], "seconds", seconds)
	return nil
}
