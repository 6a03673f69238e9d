package word

// Stop reports whether a folded word is so common in English that it does not distinguish texts.
func Stop(w string) bool {
	switch w {
	case "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do", "does", "for", "from",
		"had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "no", "not", "of", "on", "or",
		"our", "should", "so", "some", "such", "than", "that", "the", "their", "them", "then", "there", "these", "they",
		"this", "those", "to", "was", "we", "were", "what", "when", "where", "which", "while", "who", "why", "will", "with",
		"would", "you", "your":
		return true
	}
	return false
}
