package jsonedit

// skipScalar steps over a number or one of Python's literals.
func skipScalar(b []byte, i int) (int, error) {
	var word string
	switch at(b, i) {
	case 'n':
		word = "null"
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'N':
		word = "NaN"
	case 'I':
		word = "Infinity"
	case '-':
		if at(b, i+1) == 'I' {
			word = "-Infinity"
			break
		}
		return skipNumber(b, i)
	default:
		return skipNumber(b, i)
	}
	if end := i + len(word); end <= len(b) && string(b[i:end]) == word {
		return end, nil
	}
	return i, syntax(i, "expected a value")
}

// skipNumber accepts what RFC 8259 calls a number.
func skipNumber(b []byte, i int) (int, error) {
	start := i
	if at(b, i) == '-' {
		i++
	}
	switch c := at(b, i); {
	case c == '0':
		i++
	case '1' <= c && c <= '9':
		i = skipDigits(b, i)
	default:
		return start, syntax(start, "expected a value")
	}
	if at(b, i) == '.' {
		end := skipDigits(b, i+1)
		if end == i+1 {
			return i, syntax(i, "number without a fraction")
		}
		i = end
	}
	if c := at(b, i); c != 'e' && c != 'E' {
		return i, nil
	}
	i++
	if c := at(b, i); c == '+' || c == '-' {
		i++
	}
	end := skipDigits(b, i)
	if end == i {
		return i, syntax(i, "number without an exponent")
	}
	return end, nil
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}
