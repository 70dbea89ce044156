package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// Kind is what was at a path.
type Kind string

// The kinds of reference 11.
const (
	Regular     Kind = "regular"
	Absent      Kind = "absent"
	Unavailable Kind = "unavailable"
	Symlink     Kind = "symlink"
	Directory   Kind = "directory"
	Special     Kind = "special"
)

// State is what was at a path. All but Kind is of regular files.
type State struct {
	Kind   Kind
	Digest string // "sha256:" and hex
	Blob   string // the name of the file, beside the manifest, with the content
	Mode   fs.FileMode
	Size   int64 // in bytes
	// links is how many names the file has, when it was looked at.
	links uint64
}

// same reports whether two states have the same content.
func (s State) same(o State) bool { return s.Kind == o.Kind && s.Digest == o.Digest }

// restorable reports whether a path can be brought to this state.
func (s State) restorable() bool { return s.Kind == Regular || s.Kind == Absent }

func (s State) String() string { return string(s.Kind) + " " + s.Digest }

// encode is the state as it stands in a manifest.
func (s State) encode() []byte {
	o := jsonedit.NewObject()
	members := []jsonedit.Member{{Key: "kind", Raw: jsonedit.EncodeString(string(s.Kind))}}
	if s.Kind == Regular {
		members = append(members,
			jsonedit.Member{Key: "digest", Raw: jsonedit.EncodeString(s.Digest)},
			jsonedit.Member{Key: "blob_ref", Raw: encodeName(s.Blob)},
			jsonedit.Member{Key: "mode", Raw: jsonedit.EncodeString(fmt.Sprintf("%04o", s.Mode.Perm()))},
			jsonedit.Member{Key: "size", Raw: jsonedit.EncodeInt(s.Size)})
	}
	o.SetAll(members)
	return o.Bytes()
}

func encodeName(name string) []byte {
	if name == "" {
		return []byte("null")
	}
	return jsonedit.EncodeString(name)
}

// decodeState reads a state; null is nil.
func decodeState(raw []byte) (*State, error) {
	if len(raw) == 0 || jsonedit.IsNull(raw) {
		return nil, nil
	}
	o, err := jsonedit.ParseObject(raw)
	if err != nil {
		return nil, err
	}
	s := &State{Kind: Kind(o.Str("kind"))}
	switch s.Kind {
	case Regular:
	case Absent, Unavailable, Symlink, Directory, Special:
		return s, nil
	default:
		return nil, fmt.Errorf("unknown kind %q", s.Kind)
	}
	s.Digest, s.Blob = o.Str("digest"), o.Str("blob_ref")
	mode, err := strconv.ParseUint(o.Str("mode"), 8, 12)
	if err != nil {
		return nil, fmt.Errorf("mode: %w", err)
	}
	s.Mode = fs.FileMode(mode).Perm()
	s.Size, _ = o.Int("size")
	if !plainName(s.Blob) && s.Blob != "" {
		return nil, fmt.Errorf("blob %q is no file name", s.Blob)
	}
	return s, nil
}

func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && name == filepath.Base(name)
}

// kindOf is the kind of what Lstat found.
func kindOf(fi fs.FileInfo) Kind {
	switch {
	case fi.Mode().IsRegular():
		return Regular
	case fi.IsDir():
		return Directory
	case fi.Mode()&fs.ModeSymlink != 0:
		return Symlink
	}
	return Special
}

// look returns the present state of a path, with its digest.
func look(f disk.FS, path string) (State, error) {
	fi, err := f.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return State{Kind: Absent}, nil
	}
	if err != nil {
		return State{}, err
	}
	if kind := kindOf(fi); kind != Regular {
		return State{Kind: kind}, nil
	}
	file, fi, err := safefile.OpenRegular(f, path)
	if err != nil {
		return State{}, err
	}
	w, err := safefile.Hash(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return State{}, err
	}
	return stateOf(fi, w), nil
}

func stateOf(fi fs.FileInfo, w safefile.Written) State {
	return State{Kind: Regular, Digest: "sha256:" + w.SHA256, Mode: fi.Mode().Perm(), Size: w.Size, links: safefile.Links(fi)}
}

// maxCopies is how often a file is copied that is being written to.
const maxCopies = 3

// keep copies a file into a new blob in dir, unless there is none. Where the
// file is not what can be kept, the state says so and there is no blob. The
// blob is durable, name and all, when this returns.
func keep(f disk.FS, path, dir, blobPrefix string) (State, error) {
	for range maxCopies {
		s, err := look(f, path)
		if err != nil || s.Kind != Regular || s.links != 1 {
			return s, err
		}
		kept, err := copyBlob(f, path, dir, blobPrefix+"."+safefile.RandomHex())
		if err != nil {
			return State{}, err
		}
		if kept.same(s) {
			return kept, f.SyncDir(dir)
		}
		if err := f.Remove(filepath.Join(dir, kept.Blob)); err != nil {
			return State{}, err
		}
	}
	return State{}, fmt.Errorf("%s is being written to: %w", path, ErrNotRecordable)
}

func copyBlob(f disk.FS, path, dir, name string) (State, error) {
	file, fi, err := safefile.OpenRegular(f, path)
	if err != nil {
		return State{}, err
	}
	w, err := safefile.Create(f, filepath.Join(dir, name), file, safefile.Attr{})
	if err = errors.Join(err, file.Close()); err != nil {
		return State{}, err
	}
	s := stateOf(fi, w)
	s.Blob = name
	return s, nil
}
