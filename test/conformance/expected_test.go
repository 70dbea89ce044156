package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// expectedFile is NAME.expected.json. Decoding refuses unknown keys at every
// level that is spelled out here, so that nothing recorded is passed over.
type expectedFile struct {
	Format           string          `json:"format"`
	Fixture          string          `json:"fixture"`
	Description      string          `json:"description"`
	Peer             json.RawMessage `json:"peer"`
	RecordedAt       float64         `json:"recorded_at"`
	RootPlaceholder  string          `json:"root_placeholder"`
	PlaceholderFiles []string        `json:"placeholder_files"`
	Notes            []string        `json:"notes"`
	OpenError        *peerError      `json:"open_error"`
	Disk             struct {
		ChangesOnOpen    []diskChange    `json:"changes_on_open"`
		IndexAfterOpen   json.RawMessage `json:"index_after_open"`
		ChangesByReading []diskChange    `json:"changes_by_reading"`
	} `json:"disk"`
	ListSessions     json.RawMessage            `json:"list_sessions"`
	CountSessions    []countAnswer              `json:"count_sessions"`
	Sessions         map[string]expectedSession `json:"sessions"`
	MissingSession   missingSession             `json:"missing_session"`
	SeedOverrides    []override                 `json:"seed_overrides"`
	StartupSweep     json.RawMessage            `json:"startup_sweep"`
	Expectations     []expectation              `json:"expectations"`
	ClockSensitive   []remark                   `json:"clock_sensitive"`
	VersionDependent []remark                   `json:"version_dependent"`
}

type peerError struct {
	Error  string `json:"error"`
	NodeID string `json:"node_id"`
	Detail string `json:"detail"`
}

type diskChange struct {
	Path   string `json:"path"`
	Change string `json:"change"`
}

type listAnswer struct {
	RowsArgs json.RawMessage   `json:"rows_args"`
	Rows     []json.RawMessage `json:"rows"`
	Queries  []listQuery       `json:"queries"`
}

type listQuery struct {
	Args map[string]json.RawMessage `json:"args"`
	idList
}

type countAnswer struct {
	Args  map[string]json.RawMessage `json:"args"`
	Count int                        `json:"count"`
}

// idList is a list of ids, written out or, above 400 of them, summed up.
type idList struct {
	IDs    []string `json:"ids"`
	Count  *int     `json:"ids_count"`
	First  []string `json:"ids_first"`
	Last   []string `json:"ids_last"`
	SHA256 string   `json:"ids_sha256"`
}

// expectedSession is an entry of "sessions". Answers stay raw, because any of
// them may be {"error": type} instead.
type expectedSession struct {
	About             string          `json:"about"`
	Dir               *string         `json:"dir"`
	OnDisk            bool            `json:"on_disk"`
	Symlink           string          `json:"symlink_to"`
	DeletedByOpen     bool            `json:"deleted_by_open"`
	Openable          bool            `json:"openable"`
	GetSession        json.RawMessage `json:"get_session"`
	GetMessages       json.RawMessage `json:"get_messages"`
	GetNodes          json.RawMessage `json:"get_nodes"`
	GetBranch         json.RawMessage `json:"get_branch"`
	ListBranches      json.RawMessage `json:"list_branches"`
	ArchivedBranches  json.RawMessage `json:"list_archived_branches"`
	LaterBranches     json.RawMessage `json:"list_branches_later_revision"`
	LatestUserText    json.RawMessage `json:"latest_user_text"`
	DeepestLeaf       json.RawMessage `json:"get_deepest_leaf"`
	Descendants       json.RawMessage `json:"get_descendants"`
	MergedHeads       json.RawMessage `json:"merged_heads"`
	SessionCommits    json.RawMessage `json:"session_commits"`
	Git               *expectedGit    `json:"git"`
	Files             *expectedFiles  `json:"files"`
	Attachments       json.RawMessage `json:"attachments"`
	AttachmentMarkers json.RawMessage `json:"attachment_markers"`
}

type expectedGit struct {
	Head    string   `json:"head"`
	Branch  string   `json:"branch"`
	Commits *int     `json:"commits"`
	Tree    string   `json:"tree"`
	Status  []string `json:"status_porcelain"`
	FsckOK  bool     `json:"fsck_ok"`
}

type expectedFiles struct {
	Meta          *string           `json:"meta.json"`
	HistoryCount  int               `json:"history_count"`
	HistorySHA256 *string           `json:"history_sha256"`
	History       map[string]string `json:"history"`
	Other         map[string]string `json:"other"`
}

type messagesAnswer struct {
	Count  int               `json:"count"`
	Items  []messageItem     `json:"items"`
	Full   []json.RawMessage `json:"full"`
	Limits []limitAnswer     `json:"limits"`
}

type messageItem struct {
	ID      string          `json:"id"`
	Role    string          `json:"role"`
	SHA256  string          `json:"content_sha256"`
	Chars   *int            `json:"content_chars"`
	Bytes   *int            `json:"content_bytes"`
	Content json.RawMessage `json:"content_json"`
	Status  json.RawMessage `json:"status"`
}

type limitAnswer struct {
	Limit int `json:"limit"`
	idList
}

type nodeAnswer struct {
	Seq         int64   `json:"seq"`
	ID          string  `json:"id"`
	Role        string  `json:"role"`
	Name        string  `json:"name"`
	Caller      string  `json:"caller"`
	Predecessor *string `json:"predecessor"`
}

type branchAnswer struct {
	Head *string `json:"head"`
	idList
	peerError
}

type branchRow struct {
	Head      string          `json:"head_msg_id"`
	Name      *string         `json:"name"`
	CreatedAt json.RawMessage `json:"created_at"`
	UpdatedAt json.RawMessage `json:"updated_at"`
	Archived  bool            `json:"archived"`
}

type laterBranches struct {
	Derived bool     `json:"derived"`
	Heads   []string `json:"heads"`
}

type leafAnswer struct {
	From         *string `json:"from"`
	Leaf         *string `json:"leaf"`
	NeverReturns bool    `json:"peer_never_returns"`
	peerError
}

type descendantsAnswer struct {
	Of string `json:"of"`
	idList
	peerError
}

type commitsAnswer struct {
	Limit  int          `json:"limit"`
	Count  int          `json:"count"`
	Items  []commitItem `json:"items"`
	Limit2 []string     `json:"limit_2"`
}

type commitItem struct {
	SHA       string  `json:"sha"`
	Short     string  `json:"short_sha"`
	Timestamp float64 `json:"timestamp"`
	Message   string  `json:"message"`
}

type longText struct {
	Text struct {
		SHA256 string `json:"sha256"`
		Chars  int    `json:"chars"`
		Head   string `json:"head"`
		Tail   string `json:"tail"`
	} `json:"$text"`
}

type missingSession struct {
	ID             string          `json:"id"`
	GetSession     json.RawMessage `json:"get_session"`
	GetMessages    []string        `json:"get_messages"`
	GetBranch      []string        `json:"get_branch"`
	ListBranches   []string        `json:"list_branches"`
	LatestUserText *string         `json:"latest_user_text"`
	DeepestLeaf    *string         `json:"get_deepest_leaf"`
	Descendants    []string        `json:"get_descendants"`
	MergedHeads    []string        `json:"merged_heads"`
	SessionCommits []string        `json:"session_commits"`
	BadIDs         []struct {
		ID         string          `json:"id"`
		GetSession json.RawMessage `json:"get_session"`
	} `json:"bad_ids"`
}

type override struct {
	API      string                     `json:"api"`
	Session  string                     `json:"session"`
	Node     string                     `json:"node"`
	File     string                     `json:"file"`
	Args     map[string]json.RawMessage `json:"args"`
	Field    string                     `json:"field"`
	Peer     json.RawMessage            `json:"peer"`
	Seed     json.RawMessage            `json:"seed"`
	Basis    string                     `json:"basis"`
	Optional bool                       `json:"optional"`
}

type expectation struct {
	API        string          `json:"api"`
	Session    string          `json:"session"`
	Basis      string          `json:"basis"`
	Why        string          `json:"why"`
	Head       string          `json:"head"`
	Error      string          `json:"error"`
	MarkerPath string          `json:"marker_path"`
	RebasedTo  json.RawMessage `json:"rebased_to"`
}

type remark struct {
	Session string `json:"session"`
	What    string `json:"what"`
	Detail  string `json:"detail"`
}

// loadExpected reads the recorded answers with the placeholder replaced by
// root.
func loadExpected(path, root string) (*expectedFile, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b = bytes.ReplaceAll(b, []byte("@SESSIONS_ROOT@"), []byte(root))
	var e expectedFile
	if err := strict(b, &e); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if e.Format != "sessionfs-golden/1" {
		return nil, fmt.Errorf("%s: unknown format %q", path, e.Format)
	}
	return &e, nil
}

// strict decodes and refuses keys that the target lacks.
func strict(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// peerFailed returns the exception that was recorded in place of an answer,
// "" when there is an answer.
func peerFailed(raw json.RawMessage) string {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return ""
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil || keys["error"] == nil {
		return ""
	}
	var e peerError
	if json.Unmarshal(raw, &e) != nil {
		return ""
	}
	return e.Error
}

// definedError reports whether an exception is an answer; the others are the
// peer failing on damaged data, where an error for that session or an answer
// without the bad file are both right.
func definedError(name string) bool {
	return strings.HasPrefix(name, "BrokenPredecessorChain")
}
