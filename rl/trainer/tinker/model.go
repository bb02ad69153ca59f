package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepswe/rl/weights"
)

// ModelOptions describe the model to train.
type ModelOptions struct {
	// Base is the server's name of the base model.
	Base string
	// Rank is the rank of the LoRA adapter; 0 trains all weights, if the server supports that.
	Rank int
	// Seed is the seed of the adapter's initial weights.
	Seed int64
	// Dedups is set if the server recognises a request that is sent twice.
	Dedups bool
	// Doubles looks for operations that the server has executed twice, if it numbers its requests.
	Doubles bool
	// Bound is set if the server deletes a model's checkpoints when it unloads the model. A model that has checkpoints is
	// then not unloaded.
	Bound bool
	// ChunkBytes limits the body of one request [what the server takes]. A longer row is sent in a request of its own.
	ChunkBytes int
}

// Model is one set of weights with its optimizer. It is safe for concurrent use: operations are posted one after the
// other, and each kind waits for the previous one.
type Model struct {
	client  *Client
	session *session
	options ModelOptions
	id      string

	mu       sync.Mutex // held by an operation from its first request to its last result
	encoding encoding
	// sequence is the number of the next operation, by which servers may recognise repeated requests.
	sequence int64
	// dirty is set while the server holds a gradient that no step has used.
	dirty   bool
	doubles doubles
	// saved is set once the model has a checkpoint.
	saved atomic.Bool
}

// modelTimeout limits the requests that close a model in the middle of a run.
const modelTimeout = 5 * time.Second

// creations is the maximum number of attempts to create a model if responses are lost.
const creations = 3

// Create creates a model in a session of its own, and waits until it is ready. If the response is lost, another one is
// created; the session of the first gets no heartbeats, so that the server soon removes it. A server without room for
// the model is asked again for half as long again as the client's patience: SkyRL removes the models of killed clients
// within six minutes.
func (c *Client) Create(ctx context.Context, o ModelOptions) (*Model, error) {
	if o.Base == "" {
		return nil, invalidf("create_model", "no base model is named")
	}
	e, err := c.encoding(ctx)
	if err != nil {
		return nil, err
	}
	e.bytes = cmp.Or(o.ChunkBytes, e.bytes)
	room, waits := c.newTries(), false
	room.patience += room.patience / 2
	for n := 1; ; n++ {
		s, err := c.newSession(ctx)
		if err != nil {
			return nil, err
		}
		m := &Model{client: c, session: s, options: o, encoding: e, doubles: doubles{on: o.Doubles}}
		again, err := m.create(ctx)
		if err == nil {
			return m, nil
		}
		s.close()
		switch {
		case ctx.Err() != nil:
			return nil, err
		case isFull(err):
			if !waits {
				c.log.Warn("the trainer has no room for another model, and is asked again", "for", room.patience, "error", err)
			}
			if waits = true; !room.again(ctx, 0) {
				return nil, err
			}
		case !again || n >= creations:
			return nil, err
		default:
			c.log.Warn("the trainer's reply to create_model is lost; another model is created", "error", err)
		}
	}
}

// create creates the model. again says that it failed because the response was lost.
func (m *Model) create(ctx context.Context) (again bool, err error) {
	in := map[string]any{
		"session_id": m.session.id, "base_model": m.options.Base, "model_seq_id": 0, "type": "create_model",
		"lora_config": map[string]any{
			// Neither vLLM nor a merge takes an output layer that shares its weights with the embeddings.
			"rank": m.options.Rank, "seed": m.options.Seed, "train_mlp": true, "train_attn": true, "train_unembed": false,
		},
	}
	var reply accepted
	if err := m.client.call(ctx, "create_model", in, &reply, false); err != nil {
		// Nothing was trained, so the state of the weights is known.
		if e, ok := errors.AsType[*Error](err); ok {
			again, e.Lost = e.Lost, false
		}
		return again, err
	}
	var made struct {
		Base string `json:"base_model"`
	}
	if err := m.client.wait(ctx, promise{operation: "create_model", request: reply.Request}, &made); err != nil {
		return false, err
	}
	m.id = reply.Model
	if made.Base != "" && made.Base != m.options.Base {
		m.unload(ctx)
		return false, invalidf("create_model", "the server trains %s, not %s; to fix: name the model as the server does",
			made.Base, m.options.Base)
	}
	return false, nil
}

// operate posts an operation. The caller holds m.mu. An operation that changes weights or gradients is posted twice
// only if the server recognises that.
func (m *Model) operate(ctx context.Context, path string, in map[string]any, changes bool) (promise, error) {
	return m.accept(path, changes, func(repeatable bool) (reply accepted, err error) {
		in["model_id"], in["seq_id"] = m.id, m.sequence
		return reply, m.client.call(ctx, path, in, &reply, repeatable)
	})
}

// accept numbers an operation, calls post to send it, and returns the operation as the server has accepted it. One that
// is refused as invalid leaves its number to the next, because TuFT's server allows no gaps.
func (m *Model) accept(path string, changes bool, post func(repeatable bool) (accepted, error)) (promise, error) {
	m.sequence++
	// A second load_weights is refused, because it is not the model's first operation.
	reply, err := post(!changes || m.options.Dedups && path != "load_weights")
	if err != nil {
		if errors.Is(err, ErrInvalid) {
			m.sequence--
		}
		if e, ok := errors.AsType[*Error](err); ok && e.Kind == ErrConflict && changes {
			e.Detail += "; another process trains this model"
			e.Lost = true
		}
		return promise{}, err
	}
	if !m.client.fresh(reply.Request) {
		return promise{}, &Error{Operation: path, Kind: errRepeated, Detail: fmt.Sprintf("request %.60q is an earlier "+
			"operation, so this one may not have been executed", reply.Request), Lost: true}
	}
	return promise{operation: path, request: reply.Request, training: changes}, nil
}

// finish waits for the result of an operation. It returns an error if an operation before it was executed twice.
func (m *Model) finish(ctx context.Context, p promise, out any) error {
	if err := m.client.wait(ctx, p, out); err != nil {
		return err
	}
	return m.single(ctx, p.request)
}

// step applies the accumulated gradient and clears it. It returns the gradient's norm before clipping, NaN if it was
// not finite. known is false if the server does not return the norm.
func (m *Model) step(ctx context.Context, a adam) (norm float64, known bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.postStep(ctx, a)
	if err != nil {
		return 0, false, err
	}
	var out struct {
		Metrics map[string]*float64 `json:"metrics"`
	}
	m.doubles.rate = a.LearningRate
	if err := m.finish(ctx, p, &out); err != nil {
		return 0, false, lost(err)
	}
	m.dirty = false
	norm, known = valueOf(out.Metrics, "grad_norm")
	return norm, known, nil
}

func (m *Model) postStep(ctx context.Context, a adam) (promise, error) {
	return m.operate(ctx, "optim_step", map[string]any{"adam_params": a, "type": "optim_step"}, true)
}

// valueOf returns the metric whose name contains a word; NaN if it was not finite.
func valueOf(metrics map[string]*float64, word string) (v float64, ok bool) {
	for name, v := range metrics {
		switch {
		case !strings.Contains(name, word):
		case v == nil:
			return math.NaN(), true
		default:
			return *v, true
		}
	}
	return 0, false
}

// motionless is an optimizer step that discards the accumulated gradient.
var motionless = adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}

// zero discards the accumulated gradient, and returns its norm as step does.
func (m *Model) zero(ctx context.Context) (norm float64, known bool, err error) {
	return m.step(ctx, motionless)
}

// maxNames is how many names to try for a checkpoint: a request whose response was lost may have used one.
const maxNames = 4

// first posts an operation and waits for its result. If the server refuses its name or number as already in use, it
// tries again, maxNames times in all. input is called with the number of the try.
func (m *Model) first(ctx context.Context, path string, out any, input func(try int) map[string]any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := 1; ; n++ {
		p, err := m.operate(ctx, path, input(n), false)
		if err == nil {
			err = m.finish(ctx, p, out)
		}
		if !errors.Is(err, ErrConflict) || n == maxNames {
			return err
		}
	}
}

// save writes weights and optimizer under a name that the model has not used, and returns the checkpoint's address.
func (m *Model) save(ctx context.Context, name string) (string, error) {
	const path = "save_weights"
	var out struct {
		Path string `json:"path"`
	}
	err := m.first(ctx, path, &out, func(try int) map[string]any {
		return map[string]any{"path": tried(name, try), "type": path}
	})
	if err == nil {
		m.saved.Store(true)
	}
	if err == nil && !strings.HasPrefix(out.Path, "tinker://") {
		err = faultf(path, "it returned %.60q instead of an address", out.Path)
	}
	return out.Path, err
}

// load restores a checkpoint, with the optimizer's state or, if the server supports that, without it. It must be the
// model's first operation.
func (m *Model) load(ctx context.Context, address string, optimizer bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	in := map[string]any{"path": address, "optimizer": optimizer, "type": "load_weights"}
	p, err := m.operate(ctx, "load_weights", in, true)
	if err != nil {
		return err
	}
	return m.client.wait(ctx, p, nil)
}

const pathForSampler = "save_weights_for_sampler"

// publish creates a sampling session with the current weights.
func (m *Model) publish(ctx context.Context, number int64) (session string, err error) {
	var out struct {
		Session string `json:"sampling_session_id"`
	}
	err = m.first(ctx, pathForSampler, &out, func(int) map[string]any {
		return map[string]any{"sampling_session_seq_id": number, "type": pathForSampler}
	})
	if err == nil && out.Session == "" {
		err = faultf(pathForSampler, "it returned no sampling session")
	}
	return out.Session, err
}

// export saves the current weights for sampling elsewhere, and returns their address.
func (m *Model) export(ctx context.Context, name string) (address string, err error) {
	err = m.first(ctx, pathForSampler, nil, func(try int) map[string]any {
		address = "tinker://" + m.id + "/sampler_weights/" + tried(name, try)
		return map[string]any{"path": tried(name, try), "type": pathForSampler}
	})
	return address, err
}

// takeAdapter writes the adapter with the current weights to the new directory dir. number must not be that of an
// earlier publication of the model.
func (m *Model) takeAdapter(ctx context.Context, number int64, dir string) error {
	if from := m.client.loraSync; from != "" {
		if _, err := m.publish(ctx, number); err != nil {
			return err
		}
		if err := weights.Copy(filepath.Join(from, filepath.Base(m.id)), dir); err != nil {
			return fmt.Errorf("%w; to fix: set trainer.lora_sync_path to where this machine sees the server's "+
				"trainer.policy.model.lora.lora_sync_path", err)
		}
		return nil
	}
	return m.take(ctx, number, adapterTo(dir))
}

// take saves the current weights for sampling elsewhere, downloads them, and deletes them on the server.
func (m *Model) take(ctx context.Context, number int64, to unpacking) error {
	address, err := m.export(ctx, fmt.Sprintf("deepswe-%d", number))
	if err != nil {
		return err
	}
	return m.client.take(ctx, address, to)
}

// tried returns the name for a checkpoint in the given try.
func tried(name string, try int) string {
	if try > 1 {
		name = fmt.Sprintf("%s-%d", name, try)
	}
	return name
}

// Close unloads the model and ends its session, within limit. It clears the gradient first, because some servers would
// leave it to the next model. The result of that is not waited for: servers keep the order of a model's operations.
func (m *Model) Close(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if m.dirty {
		m.mu.Lock()
		_, err := m.postStep(ctx, motionless)
		m.mu.Unlock()
		if err != nil {
			m.client.log.Debug("trainer: gradient not cleared", "error", err)
		}
	}
	if !m.options.Bound || !m.saved.Load() {
		m.unload(ctx)
	}
	m.session.close()
}

// unload frees the model's slot on the server. If it fails, the server does so when the session has expired.
func (m *Model) unload(ctx context.Context) {
	in := map[string]string{"model_id": m.id, "type": "unload_model"}
	if err := m.client.repeatable(ctx, "unload_model", in, nil); err != nil {
		m.client.log.Debug("trainer: model not unloaded", "model", m.id, "error", err)
	}
}
