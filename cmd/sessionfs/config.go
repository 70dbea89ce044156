package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
)

// setting is one value that can be configured: a flag wins over an environment
// variable, that over the configuration file, that over the default.
type setting struct {
	key     string   // in the configuration file
	flag    string   // "" when there is none
	env     []string // the first that is set counts
	builtin string   // the default
	value   string
	source  string // where value is from: "--flag", "$NAME", the file, "default"
}

// settingKeys are all settings. A test compares them with the man page.
func settingKeys() []*setting {
	return []*setting{
		{key: "store", flag: "store", env: []string{"SESSIONFS_STORE"}},
		{key: "log_level", flag: "log-level", env: []string{"SESSIONFS_LOG_LEVEL"}, builtin: "warn"},
		{key: "log_format", flag: "log-format", env: []string{"SESSIONFS_LOG_FORMAT"}, builtin: "text"},
		{key: "lock_timeout", flag: "lock-timeout", env: []string{"SESSIONFS_LOCK_TIMEOUT"}, builtin: "10s"},
		{key: "color", flag: "color", env: []string{"SESSIONFS_COLOR"}, builtin: "auto"},
		{key: "pager", env: []string{"SESSIONFS_PAGER", "PAGER"}, builtin: "less -FRX"},
		{key: "editor", env: []string{"VISUAL", "EDITOR"}, builtin: "vi"},
	}
}

// configPath is where the configuration file is looked for.
func configPath() string {
	base := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "sessionfs", "config.toml")
}

// readConfig reads the configuration file; one that is not there sets nothing.
func readConfig(path string) (map[string]string, error) {
	values := map[string]string{}
	if path == "" {
		return values, nil
	}
	var raw map[string]any
	_, err := toml.DecodeFile(path, &raw)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return values, nil
	case err != nil:
		return nil, failf(exitInvalid, "mend the file, or move it away", "configuration: %s: %w", path, err)
	}
	known := settingKeys()
	for key, v := range raw {
		text, isText := v.(string)
		if !slices.ContainsFunc(known, func(s *setting) bool { return s.key == key }) {
			return nil, failf(exitInvalid, "sessionfs(1), \"CONFIGURATION\", lists the keys", "configuration: %s: unknown key %q", path, key)
		}
		if !isText {
			return nil, failf(exitInvalid, "", "configuration: %s: %s is not a text in quotation marks", path, key)
		}
		values[key] = text
	}
	return values, nil
}

// resolveSettings finds the effective value of every setting.
func resolveSettings(cmd *cobra.Command, file string, values map[string]string) []*setting {
	all := settingKeys()
	for _, s := range all {
		s.value, s.source = s.builtin, "default"
		if v, ok := values[s.key]; ok {
			s.value, s.source = v, file
		}
		for _, name := range slices.Backward(s.env) {
			if v := os.Getenv(name); v != "" {
				s.value, s.source = v, "$"+name
			}
		}
		if s.key == "color" && os.Getenv("NO_COLOR") != "" {
			s.value, s.source = "never", "$NO_COLOR"
		}
		if s.flag == "" {
			continue
		}
		if f := cmd.Flags().Lookup(s.flag); f != nil && f.Changed {
			s.value, s.source = f.Value.String(), "--"+s.flag
		}
	}
	return all
}

// configure finds the effective settings and puts them into a.
func (a *app) configure(cmd *cobra.Command) error {
	path := configPath()
	values, err := readConfig(path)
	if err != nil {
		return err
	}
	a.settings = resolveSettings(cmd, path, values)
	for _, s := range a.settings {
		if err := a.apply(cmd, s); err != nil {
			return err
		}
	}
	return nil
}

// apply takes one setting over, after a look at its value.
func (a *app) apply(cmd *cobra.Command, s *setting) error {
	switch s.key {
	case "store":
		if s.value == "" && s.source == "--"+s.flag {
			return emptyPath("--store", "leave --store out for the default store")
		}
		a.store = s.value
		if s.source == configPath() {
			if a.store = expandHome(s.value); !filepath.IsAbs(a.store) {
				return badSetting(cmd, s, "an absolute path")
			}
		}
	case "log_level":
		a.logLevel = s.value
		return oneOf(cmd, s, "debug", "info", "warn", "error")
	case "log_format":
		a.logFormat = s.value
		return oneOf(cmd, s, "text", "json")
	case "color":
		a.color = s.value
		return oneOf(cmd, s, "auto", "always", "never")
	case "pager":
		a.pager = s.value
	case "editor":
		a.editor = s.value
	case "lock_timeout":
		d, err := time.ParseDuration(s.value)
		if err != nil || d <= 0 {
			return badSetting(cmd, s, "a time like 10s or 1m")
		}
		a.lockTimeout = d
	}
	return nil
}

// emptyPath refuses an empty path: a script whose variable is not set does not
// mean the default, nor the directory that it stands in.
func emptyPath(what, hint string) error {
	return failf(exitInvalid, hint, "%s is empty: it names no file or directory", what)
}

// expandHome replaces a leading ~/, which no shell does in a file.
func expandHome(dir string) string {
	rest, ok := strings.CutPrefix(dir, "~/")
	if !ok {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return dir
	}
	return filepath.Join(home, rest)
}

func oneOf(cmd *cobra.Command, s *setting, words ...string) error {
	if slices.Contains(words, s.value) {
		return nil
	}
	return badSetting(cmd, s, "none of "+strings.Join(words, ", "))
}

// badSetting refuses a value, in the words of the place that it came from.
func badSetting(cmd *cobra.Command, s *setting, why string) error {
	if strings.HasPrefix(s.source, "--") {
		return usagef(cmd, "%s %q is %s", s.source, s.value, notA(why))
	}
	return failf(exitInvalid, "'sessionfs status --config' shows where each value is from",
		"configuration: %s: %s %q is %s", s.source, s.key, s.value, notA(why))
}

func notA(why string) string {
	if strings.HasPrefix(why, "none of") {
		return why
	}
	return "not " + why
}

// printConfig prints every effective setting and where it came from.
func (a *app) printConfig(asJSON bool) error {
	var lines [][]string
	for _, s := range a.settings {
		value := s.value
		if s.key == "store" && value == "" {
			if loc, err := a.locate(); err == nil {
				value = loc.root
			}
		}
		if asJSON {
			err := printJSON(a.stdout, struct {
				Key    string `json:"key"`
				Value  string `json:"value"`
				Source string `json:"source"`
			}{s.key, value, s.source})
			if err != nil {
				return err
			}
			continue
		}
		lines = append(lines, []string{s.key, fmt.Sprintf("%q", value), s.source})
	}
	if asJSON {
		return nil
	}
	return table(a.stdout, []string{"KEY", "VALUE", "FROM"}, lines)
}
