package recovery

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// Phase is how far a restoration has come (reference 11).
type Phase string

// The phases of an intent.
const (
	PhasePrepared   Phase = "prepared"  // no file has been touched
	PhaseApplying   Phase = "applying"  // files are old or new
	PhaseCommitted  Phase = "committed" // all files are new
	PhaseRolledBack Phase = "rolled_back"
	PhaseAborted    Phase = "aborted" // given up before a file was touched
	// PhaseRecoveryRequired: somebody else's change stands in the way.
	PhaseRecoveryRequired Phase = "recovery_required"
)

func (p Phase) final() bool {
	return p == PhaseCommitted || p == PhaseRolledBack || p == PhaseAborted
}

// Intent is a restoration as its intent file records it.
type Intent struct {
	Key   string
	Phase Phase
	// PlanHash is the confirmed plan's, Turns its turns.
	PlanHash string
	Turns    []string
	// Payload is what the caller gave to Apply, raw JSON.
	Payload []byte
	// Foreign: another program wrote it, and only that can carry it on.
	Foreign bool
}

// The writer's name in an intent, by which ours are known.
const (
	writerName  = "sessionfs"
	intentFormV = 1
)

// record is an intent file's content.
type record struct {
	Version  int             `json:"version"`
	Writer   string          `json:"writer"`
	Kind     string          `json:"kind"`
	Key      string          `json:"key"`
	Phase    Phase           `json:"status"`
	PlanHash string          `json:"plan_hash"`
	Project  string          `json:"project"`
	Turns    []string        `json:"turns"`
	Files    []step          `json:"files"`
	Dirs     []string        `json:"dirs"` // missing ones, outermost first
	Payload  json.RawMessage `json:"payload"`
	Error    string          `json:"error"`
	Clean    bool            `json:"clean"` // nothing is left beside the files
	Created  float64         `json:"created_at"`
	Updated  float64         `json:"updated_at"`
}

// step is what is done to one file, and the names used for it, in the file's
// own directory.
type step struct {
	Rel      string    `json:"path"`
	Expected stepState `json:"expected"`
	Target   stepState `json:"target"`
	Guard    string    `json:"guard"`  // the old file, moved aside
	Staged   string    `json:"staged"` // the new file, before it has its name
}

// stepState is a State without what only recording needs.
type stepState struct {
	Kind   Kind   `json:"kind"`
	Digest string `json:"digest,omitempty"`
	Mode   string `json:"mode,omitempty"`
}

func newStepState(s State) stepState {
	if s.Kind != Regular {
		return stepState{Kind: s.Kind}
	}
	return stepState{Kind: s.Kind, Digest: s.Digest, Mode: fmt.Sprintf("%04o", s.Mode.Perm())}
}

func (s stepState) state() State {
	mode, _ := strconv.ParseUint(s.Mode, 8, 12)
	return State{Kind: s.Kind, Digest: s.Digest, Mode: fs.FileMode(mode).Perm()}
}

func (r *record) intent() Intent {
	return Intent{Key: r.Key, Phase: r.Phase, PlanHash: r.PlanHash, Turns: r.Turns, Payload: r.Payload, Foreign: r.Writer != writerName}
}

// valid reports whether an intent can be carried on: it comes from the disk,
// and names files.
func (r *record) valid() bool {
	for _, s := range r.Files {
		rel := filepath.Clean(s.Rel)
		if !filepath.IsLocal(s.Rel) || rel == "." || rel != s.Rel || !plainName(s.Guard) || !plainName(s.Staged) ||
			!s.Expected.state().restorable() || !s.Target.state().restorable() {
			return false
		}
	}
	for _, d := range r.Dirs {
		if !filepath.IsLocal(d) || filepath.Clean(d) == "." {
			return false
		}
	}
	return r.Version == intentFormV && r.Writer == writerName
}

// intentID is the name of a rewind's intent and of its lock.
func intentID(key string) string {
	sum := sha256.Sum256([]byte("rewind\x00" + key))
	return hex.EncodeToString(sum[:])[:24]
}

func (t *Tree) intentPath(id string) string {
	return filepath.Join(t.opt.Dir, intentsName, id+".json")
}

// writeIntent makes an intent's phase durable.
func (t *Tree) writeIntent(r *record) error {
	r.Updated = t.now()
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	text := jsonedit.Indent(jsonedit.Canonical(raw), "")
	if err := disk.MkdirOwned(t.fs, filepath.Join(t.opt.Dir, intentsName), 0o700); err != nil {
		return err
	}
	return disk.WriteAtomic(t.fs, t.intentPath(intentID(r.Key)), text, disk.WriteOptions{})
}

// readIntent reads one; nil when there is none. What is not understood is
// another program's.
func (t *Tree) readIntent(id string) (*record, error) {
	text, err := t.fs.ReadFile(t.intentPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil || !r.valid() || intentID(r.Key) != id {
		foreign := &record{}
		if o, err := jsonedit.ParseObject(text); err == nil {
			foreign.Phase, foreign.Key = Phase(o.Str("status")), o.Str("key")
		}
		return foreign, nil
	}
	return r, nil
}

// intents returns the ids of all intents, sorted.
func (t *Tree) intents() ([]string, error) {
	entries, err := t.fs.ReadDir(filepath.Join(t.opt.Dir, intentsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// nothingPending fails while a restoration is unfinished, another program's
// included: what it does to the files is not known.
func (t *Tree) nothingPending() error {
	ids, err := t.intents()
	if err != nil {
		return err
	}
	for _, id := range ids {
		r, err := t.readIntent(id)
		if err != nil {
			return err
		}
		if r != nil && !r.Phase.final() {
			return fmt.Errorf("intent %s is %s: %w", id, r.Phase, ErrUnfinished)
		}
	}
	return nil
}
