"""Patterns of claims, in lower case: vocabulary, contexts before an option, contexts after it.

Names ending in _LEAD match before an option, names ending in _FOLLOWS or _END after it. `claims.py`
applies them.
"""

import re

from eval_harness.reader.options import ABSENCE_ADJECTIVES, DIGITS_BY_NUMBER_WORD, UNIT_SUFFIX
from eval_harness.reader.text import CJK_RANGES

# --- vocabulary ---

ADVERB = (
    r"(?:(?:very|most|more|quite|highly|almost|absolutely|definitely|certainly|clearly|probably"
    r"|likely|indeed|simply"
    r"|therefore|thus|hence|then|also|actually|in fact|just|only|obviously|apparently|still|now"
    r"|primarily|mainly"
    r"|predominantly|essentially|typically|specifically|by far|best|really|instead|perhaps"
    r"|possibly|maybe)\s+)"
)
IMAGING_VIEW = (
    r"(?:chest|abdominal|axial|coronal|sagittal|plain|frontal|lateral|contrast-enhanced"
    r"|non-contrast|head|brain|cardiac"
    r"|fundus|pelvic|human|t[12](?:-?weighted|w)|pa|ap|portable|transverse)"
)
ADJECTIVE = (
    r"(?:(?:left|right|upper|lower|middle|large|small|big|mild|moderate|severe|acute|chronic"
    r"|subacute|single|benign|new|old"
    rf"|round|tension|simple|early|late|massive|gross|dense|thick|thin|clear)"
    rf"|(?!(?:{'|'.join(sorted(ABSENCE_ADJECTIVES))}"
    r"|noted|showed|revealed|patient|content|extent|reported|mentioned|described)\b)"
    r"[a-z-]{2,}(?:al|ar|ic|ous|ive|ary|oid|(?<!m)ent|ant|ed|ate)\b)"
)
"""An adjective that does not change which option is meant ("a solitary pulmonary nodule")."""
TRAILING_ADJECTIVES = re.compile(rf"(?<![a-z-])(?:{ADJECTIVE}\s+){{1,3}}$")
# Articles of the languages whose commonest answer phrases are read.
ARTICLE = r"(?:(?:an?|the|one|some|la|le|les|el|die|der|das|den|ein|eine|einen|un|una|une|il|lo)\s+|l')"
OPTION_NOUN = (
    r"(?:options?|choices?|answers?|letters?|statements?|opción|opção|opzione|antwort|réponse"
    r"|respuesta"
    r"|alternativa|proposition"
    r"|选项|选择|选|答)"
)
GAP_BEFORE_OPTION = (
    r"(?:[\s\"'“”«»(\[{<⟨「*#>•☑✓✔✅👉➡→\d.)-]*(?:(?:both|either)\s+)?"
    rf"(?:{ADVERB}|{ARTICLE})*+(?:{OPTION_NOUN}\s*[:#]?)?[\s\"'“«(\[{{<⟨「*]*)"
)
"""Filler between a lead-in and the option that it names."""
CLAUSE_START = re.compile(
    r"^|[.!?;:,(\n–—✓✔✅✗❌【】]\s*|\s-\s|\s(?==>|->|→|⇒|∴)|因此|所以|故|只有"
    r"|\b(?=[a-z])(?:mak(?:es?|ing)|so|but|and|therefore|thus|hence|however|then|because|since"
    r"|yet|now|while"
    r"|donc|por (?:lo )?tanto|daher|somit"
    r"|deshalb|(?<!not )(?:confident|certain|sure|clear) that|(?:to )?gets?|gives|creo que"
    r"|je pense que"
    r"|ich denke,? dass|(?:i|we) (?:think|believe|conclude"
    r"|suspect|would say)(?: that)?|here(?: is|['’]s)(?= (?:my|the) )"
    r"|(?:suggest|indicat|mean|conclud|confirm|infer|determin)\w* that)[\s,]+"
)
"""Start of a clause."""
CLAUSE_OPENING = r"[\s\"'*#>•-]*"
UNHEDGED = (
    r"(?!\b(?:not|no|non|nothing|hardly|never|nor|neither|wrong|incorrect|incorrectly|false|if"
    r"|whether|unless|either|others?|another"
    r"|(?:less|least) (?:likely|probable|plausible|consistent|compatible|appropriate|typical"
    r"|suspicious)|depends|unclear|could|might|may"
    r"|cannot|unknown|nicht|pas|kein\w*|eliminated?|excluded?|discard(?:ed)?|reject(?:ed)?|avoid"
    r"|decoy|weakest|falsch\w*)\b|[不没非错])"
)
DENIAL_WORD = re.compile(
    r"\b(?:not|nor|neither|never|wrong|incorrect|false|except|least|unlikely|exclud\w+"
    r"|eliminat\w+|reject\w+|ruled out)\b"
)
"""Words that deny an option on its own line, in the text before it."""
ANSWER_QUALIFIER = (
    r"(?:(?!(?:final|correct|selected)\s*[:=–-])(?:very|final|corrected|correct|best|right|only"
    r"|likely"
    r"|likeliest|probable"
    r"|plausible|appropriate|suitable|accurate|fitting|consistent|most|more|overall|single|chosen"
    r"|selected"
    r"|predicted|true"
    r"|my|our|the|an?|its|this|primary|working|main|suggested|richtige|korrekte|meine|die|das|la"
    r"|le|bonne|ma"
    r"|meilleure|correcta|mi|corretta|правильный|верный|juiste|het|poprawna|prawidłowa|doğru)\b\s*"
    r"|正确的?|最终|最佳|最可能的?|सही\s*)*+"
)
ANSWER_WORD = (
    r"(?:answers?|ans|option|choice|output|final|correct|antwort|lösung|respuesta|réponse|opción"
    r"|risposta|resposta|ответ"
    r"|antwoord|odpowied[zź]|odpověď|cevap|svar|vastaus|jawaban|válasz|答案|答え|正解|답변?|정답|الإجابة"
    r"|उत्तर)"
)
ANSWER_CUE = (
    rf"(?:{ANSWER_WORD}|letter|(?<=correct )(?:options|choices)|response|select(?:ion|ed)"
    rf"|prediction|pick|guess"
    r"|conclusion|verdict|diagnosis|dx|diagnostic|diagnóstico|impression|classification"
    r"|interpretation|description"
    r"|statement|claim|finding|modality|result|label|class|category|diagnose|alternativa"
    r"|proposition|correcta|选项|诊断|结论)"
)
# Between an answer cue and the option: copulas, arrows, dashes, colons.
LINKING_VERB = (
    r"(?:\s*(?:\b(?:is|are|was|would be|should be|must be|will be|has to be|seems to be"
    r"|appears to be|be|remains|ist"
    r"|lautet|wäre|est|es|sería|è|é|as)\b|['’]s\b|[:=】](?!=)|=>|-+>|[→⇒➜]|–|—|\s-(?=\s)"
    r"|\b(?:هي|هو)\b|[是为為はは은는选](?::\s*)?|(?<=ans)\.|\n)\s*)+"
)
# Words up to the linking verb, none of them a negation or a hedge.
UP_TO_LINKING_VERB = rf"(?![^\W_{CJK_RANGES}])(?:{UNHEDGED}[^.:=?!;\n])*?{LINKING_VERB}"
# Phrases that retract the preceding statements.
RETRACTION = (
    r"(?:wait|hold on|correction|corrected|scratch that|strike that|disregard that|never ?mind|oops"
    r"|(?:up)?on (?:second|closer|further|a second) \w+"
    r"|on (?:review|reflection)|looking again|(?:revised|updated)(?: answer)?(?=\s*:)|apologies"
    r"|i apologi[sz]e|sorry, i meant"
    r"|(?:take|took) (?:that|it) back|misread|misspoke|was wrong|a mistake|an error|my mistake"
    r"|let me re\w+"
    r"|let me (?:look|check|think) again|i mean|edit(?=\s*:)|actually|no,? (?:wait|it is|that is)"
    r"|(?:change|revise|changing|revising) (?:my|the) answer|不对)"
)
CORRECTION = re.compile(rf"\b{RETRACTION}\b|(?<=[.,;…] )no(?=, )|不对")
"""Retraction of the statements before it, if others follow."""

# --- contexts before an option that state it as the answer ---

ANSWER_STATEMENT_LEAD = re.compile(
    rf"{CLAUSE_OPENING}(?:{RETRACTION}(?:\s*(?:[,.:;!…–-]+|\bno\b|\bit is\b|\bthat is\b"
    rf"|\bmake that\b))+\s*|no,\s+"
    rf"|{ANSWER_QUALIFIER}{ANSWER_WORD}{UP_TO_LINKING_VERB}){GAP_BEFORE_OPTION}$"
)
"""Names the answer outright ("Answer: B").

Takes precedence over intermediate conclusions ("so it is B").
"""
# Conclusions and choices: weaker than an outright answer statement.
STATEMENT_LEAD = re.compile(
    rf"{CLAUSE_OPENING}(?:"
    rf"{ANSWER_QUALIFIER}{ANSWER_CUE}{UP_TO_LINKING_VERB}"
    r"|(?:i|we)(?:['’]d|['’]ll|['’]m)?(?:\s+(?:will|would|have to|must|can|should|do|am|\w+ly"
    r"|rather|still|now))*\s+"
    r"(?:choose|chose|pick|picked|select|selected|go with|going with|go for|settle on|settle for"
    r"|opt for|vote for"
    r"|lean(?:ing)? towards?|lean to|favou?r|answer|guess(?:ing)?|say|think|believe|conclude"
    r"|suspect|(?:classify"
    r"|grade) (?:it|this) as)"
    r"(?:\s+that)?(?:\s*,?\s*(?:it(?:\s+is|['’]s)|this is|the (?:correct |best "
    r"|right )?answer is))?[\s:]+"
    r"|(?:let us |let's )?(?:go(?:ing)? with|choos(?:e|ing)|select(?:ing)?|pick(?:ing)?|settle on"
    r"|yes,)\s+"
    r"|(?:if i )?(?:forced|had) to (?:choose|guess|pick|answer)\s*[,:]\s*"
    r"|based on (?!if\b)[^.,;:\n]{1,80},\s*|(?:so|thus|therefore|hence|consequently|finally"
    r"|overall|ultimately|in conclusion|in summary"
    r"|final(?: answer)?|∴|⇒"
    r"|=>|->|→|donc|por (?:lo )?tanto|daher|somit|因此|所以|故)[\s,:]*"
    r"(?:(?:it|this|that)\s*(?:is|must be|should be|has to be|would be|['’]s)|we (?:have|get"
    r"|choose)"
    r"|i (?:choose|pick|select)|(?:the|my) (?:\w+ )?answer is)?\s*"
    r"|(?:(?:it|this|that)\s*)?(?:(?:is|must be|should be|has to be|would be)\b|(?<=[it])['’]s)\s*"
    r"|(?:(?:this|that|which|it)\s+)?leav(?:es|ing)(?:\s+(?:us|me))?(?:\s+with)?\s+"
    r"|(?:we|i)(?:\s+are|\s+am|['’]re|['’]m)\s+left\s+with\s+"
    r"|(?:i (?:would |will )?)?(?:chang|revis|updat|correct|switch)(?:e|ing|)(?:\s+(?:my"
    r"|the)\s+(?:answer|choice"
    r"|response))?(?:\s+from\s+[^.\n]{1,40}?)?\s+to\s+"
    r"|between\b[^.;\n]{1,60},\s*|[^.;,:\n]{1,40}\b(?:vs\.?|versus)\s[^.;,:\n]{1,40}:\s*"
    r"|(?:am wahrscheinlichsten )?(?:ist|es|est)\s+|ich entscheide mich für\s+|ich würde\s+"
    r"|il s['’]agit de\s+|而是"
    r"|(?:richtig|korrekt)\s+(?:ist|wäre)\s+|(?:ich|je|yo)\s+(?:wähle|nehme|choisis|elijo)\s+"
    r"|(?:elijo|escojo|scelgo|escolho|opto por)\s+|c['’]est\s+|(?:我的?)?(?:选择?"
    r"|選擇?)(?:的?是)?\s*:?\s*|应该?(?:为|选|是)\s*"
    rf"){GAP_BEFORE_OPTION}$"
)
# "not A but B": the second option is chosen.
NOT_BUT_LEAD = re.compile(
    r"\bnot\b(?!\s+only)[^.;\n]{1,80}?,?\s+but\s+(?:rather\s+)?(?:(?:in|on|at|of|from|it is|is"
    r"|an?|the|option)\s+)*\W?$"
)
BARE_LEAD = re.compile(
    rf"{CLAUSE_OPENING}(?:ist\s+)?(?:{ADVERB}"
    rf"|{ARTICLE})*+(?:{OPTION_NOUN}\s*)?(?:{ADJECTIVE}\s+){{0,3}}[\"'*(\[]*$"
)
"""Start of a clause, with no more than articles, adjectives or "option" before the option."""
# A ticked box or check mark before the option.
TICK_LEAD = re.compile(
    r"(?:^|\n|[;,])\s*(?:[-•*]\s*|\d+[.)]\s*)?(?:\[\s*[x✓✔✅]\s*\]"
    r"|[✓✔✅☑👉➡→])\s*(?:option\s+)?[\"'(\[*]*$"
)
LONE_OPTION_LEAD = re.compile(
    rf"[^\w✗❌✘×]*(?:(?:\d{{1,2}}|[a-z])[.)]\s+)?(?:(?:must be\s+|about\s+|approximately\s+"
    rf"|{IMAGING_VIEW}\s+"
    r"|(?:image|picture|photo(?:graph)?|view|scan)\s+of\s+"
    r"|(?:k-?l|kellgren[ -]lawrence|who|tnm|figo|bi-?rads|ajcc)\s+"
    rf"|{ARTICLE}|{ADVERB}|{ADJECTIVE}\s+))*+"
    rf"(?:(?:[\w-]+\s+){{1,3}}(?=\())?(?:{OPTION_NOUN}\s*)?[\"'(\[{{<*]*"
)
"""What may precede an option in a sentence that consists of that option."""
LOCATION_LEAD = re.compile(r"\W*(?:it is\s+)?(?:in|on|at|within)\s+(?:the\s+)?")
"""Preposition of a location, if nothing follows the option ("In the pelvis.")."""
HYPOTHETICAL = re.compile(
    r"\b(?:if|unless|whether|had it|were it|otherwise|suppose|assuming|should (?:the|it|there))\b"
    r"(?!\s+(?:i|we|you)\s+(?:had|have|must|were|look|consider|compare|use|examine|focus|count)"
    r"|\s+(?:forced|asked|anything))"
    r"|\baccording to (?!the (?:\w+ )?(?:image|picture|scan|findings?|x-?ray|radiograph|chart"
    r"|figure|graph"
    r"|criteria)|this\b)"
    r"|如果|假如|要是|\b(?:wenn|falls|sofern)\b(?!\s+ich)|\bsi (?:l[ae]s?|el|los|il|elle|on|hay|se)\b"
    r"|\b(?:initially|originally|at first|previously|earlier|first (?:thought|guess|impression"
    r"|glance|choice|answer)"
    r"|second (?:guess|choice)|previous answer|tempted|(?:might|could) (?:think|say|choose)"
    r"|(?:student|user|resident|colleague|radiologist|textbook|key)['’]?s (?:answer|choice|guess"
    r"|diagnosis)"
    r"|(?:you|he|she|they|user|key|others?|some|students?|colleagues?|report) (?:would |might "
    r"|may )?"
    r"(?:said|says?|suggest(?:s|ed)?|claims?|thinks?|answers?|choose))\b"
)
"""A sentence that only supposes, recalls or reports what it states."""

# --- contexts after an option ---

# Closing quotes and brackets, and a short remark in brackets.
CLOSING_MARKS = r"[\"'”»)\]}>*]*(?:\s*\((?!\s*\w\s*\))[^()\n]{1,120}\))?"
# End of the clause: punctuation, or a comma that does not add another option.
CLAUSE_PAUSE = (
    r"(?:\s*(?:$|[.!;)|\n]|\(|:(?!\s*\.?\d)|[-–—](?![\w>])"
    r"|,(?!\s*(?:but also|as well as|or|and also|if|unless|also(?! known| called))\b))"
    rf"|\s+(?:probably|for sure|i think|i believe|it is)\W*$|\s*[{CJK_RANGES}])"
)
# A reason or a contrast follows, so the option phrase is complete.
REASON_FOLLOWS = (
    r"\s+(?:because|since|as(?! well as)|due|given|based|rather than|instead of|not|unlike"
    r"|but(?! also)|although|though"
    r"|while|whereas|over)\b"
)
# A modifier follows that does not change which option is meant.
MODIFIER_FOLLOWS = (
    r"\s+(?:in|on|at|of|with|without|from|by|for|to|which|that|than|where|located|seen|shown"
    r"|visible|present|involving"
    r"|affecting|within|near|along|and|using|here|when|is the|are the|sitting|standing|lying"
    r"|containing|measuring"
    r"|extending|filling|causing|holding|wearing|walking|playing|doing)\b"
)
TEXT_END = re.compile(rf"{CLOSING_MARKS}(?:{CLAUSE_PAUSE}|{REASON_FOLLOWS}|{MODIFIER_FOLLOWS})")
# Stricter than TEXT_END: single letters occur in many other contexts.
LETTER_END = re.compile(
    rf"\s*[.:)\]](?!\S)(?!\s*\.?\d)|{CLOSING_MARKS}(?:{CLAUSE_PAUSE}|{REASON_FOLLOWS}|\s+(?:with"
    rf"|for|from|in|on|at|which|that"
    rf"|qui|to me|here|and|fits|wählen"
    r"|is (?:the|my) (?:best|correct|right|most|answer|final))\b)"
)
YES_NO_END = re.compile(
    rf"[\"'”)\]}}*]*(?!\.\s*(?:of\b|\d))(?:{CLAUSE_PAUSE}|{REASON_FOLLOWS}|\s+(?=(?:it|there|they"
    rf"|this|that"
    rf"|i)\b))(?!\s*(?:(?:wait|hold on|let me|please|that is an? (?:great|good)"
    r"|(?:of course,? )?i understand|(?:of course,? )?i (?:can|will|would be happy to"
    r"|am able to) (?:\w+ )?(?:help|assist|answer|look|analy[sz]e)"
    r"|i (?:can )?see (?:the|your|an?) (?:image|picture))\b))"
)
"""End after yes or no; not "No. 3" or "Yes, I can help"."""
ALTERNATIVE_FOLLOWS = re.compile(r"\s*(?:/|\b(?:or|but also|as well as)\b)")
SENTENCE_END = re.compile(r"[\"'”»)\]}*]*\s*(?:$|[.!](?!\d)|\n)")
LINE_END = re.compile(r"\s*[\"'”»)\]}*.,;!]*\s*(?:$|\n)")
LEADING_OPTION_END = re.compile(rf"{CLOSING_MARKS}(?!:)(?:{CLAUSE_PAUSE}|{REASON_FOLLOWS}|\s+(?:in|on|with|of)\b)")
NEGATION_WORD = (
    r"(?:(?:not|no|nor|neither|incorrect|wrong|false|unlikely|improbable|absent|ruled out"
    r"|excluded|eliminated|out|less"
    r"|never|cannot|can not|at first|would|does|do|did|could|may|might|was my|only if|if"
    r"|unless)\b|[✗❌✘×])"
)
# Only clear rejections, for a sentence after the option.
REJECTION_WORD = (
    r"(?:(?:incorrect|wrong|false|unlikely|improbable|absent|ruled out|excluded|eliminated"
    r"|no(?!\w|,)|none"
    r"|not (?:correct|likely|present|seen|visible|supported|consistent|true|applicable"
    r"|the (?:answer"
    r"|correct)))\b|[✗❌✘×])"
)
REJECTION_FOLLOWS = re.compile(
    rf"(?:[^()\n]{{0,60}}+\))?{CLOSING_MARKS}[^\S\n]*(?:(?:[-–—:]+[^\S\n]*)?(?:,?\s*(?:this|it"
    rf"|that|option"
    rf"|which)?[^\S\n]*(?:is|are|was)\s+"
    rf"(?:\w+ly\s+)?)?{NEGATION_WORD}|[.,(]+[^\S\n]*(?:(?:this|it|that|which)\s+(?:is"
    rf"|was)\s+)?{REJECTION_WORD})"
)
"""Rejection after an option ("A: incorrect", "B - not seen")."""
LABELLED_WRONG = re.compile(rf"\s*[-–—:(]\s*{REJECTION_WORD}")
VERDICT_FOLLOWS = re.compile(
    r"[\"'”)\]}*]*[^\S\n]*[✓✔✅]|"
    r"[\"'”)\]}*]*(?:\s*,?\s*\([^()\n]{1,120}\))?(?:"
    r"\s*(?:,\s*)?(?:is|are|would be|seems|appears|appears to be|must be|remains|as|looks"
    r"|represents|seems to be"
    rf"|should be|wäre|ist|est|es|è|é)\s+(?:{ADVERB}|(?:the|my|an?|both|die|das|la|le"
    rf"|{OPTION_NOUN})\s+)*"
    r"(?:bonne\s+|richtige\s+|better\s+)?"
    r"(?:correct|right|true|best|likeliest|(?:most|more) (?:likely|probable|plausible|appropriate"
    r"|accurate|suitable"
    r"|consistent|fitting|compatible|sensible|reasonable)|most \w+ (?=option|choice|answer)"
    r"|answers?|choices?"
    r"|réponse|antwort"
    r"|exacte|likely|richtige?|korrekte?|correcte?|correcta|juste|corretta"
    r"|remaining (?:option|choice|answer))"
    r"|[^\S\n]*[:=.)|–—-]+[^\S\n]*(?:this is |is )?(?:the )?(?:correct|true|yes|present"
    r"|right(?=\W*(?:$|\n|[.,;]))"
    r"|most (?:likely|consistent)|best (?:fit|match|answer|choice)|fits best|✓|✔|✅)"
    r"|\s+remains(?=\W*(?:$|\n))|\s+(?:richtig|korrekt)(?: ist| wäre)?|\s+die richtige|\s+(?:the"
    r"|my) (?:most \w+|best|correct)"
    r"|\s+(?:best )?(?:fits|matches|describes)(?: best| the (?:image|picture|findings?"
    r"|description)(?: best)?)"
    r"|\s+(?:it is|wins)\b|\s*(?:是|为|選項|选项)*(?:正确|最佳|对|最合适|最可能)"
    rf")(?:['\"”)\]*]*\s*(?:$|[.,;:!\n)|–—-]|{OPTION_NOUN}|one\b|diagnos\w+|finding|description"
    rf"|interpretation|explanation"
    r"|match|fit\b|here|because|since|as\b|given|based|in this|for this|than\b|due|的|[✓✔✅]))"
)
"""Statement after an option that it is the right one."""
# A superlative or a comparison right after the option.
COMPARISON_FOLLOWS = re.compile(
    r"\s+(?:is|are|appears?|seems?|looks?)\s+(?:to be\s+)?(?:\w+ly\s+|much\s+)?"
    r"(?:(?:the\s+)?(?:most similar to|\w{3,}est)\b|(?!rath|oth|eith|rar"
    r"|common)\w{3,}er (?P<than>than|compared (?:to|with))\b)"
)

# --- findings that are seen ---

# Verbs by which an image or a finding shows something.
SHOWING_VERB = (
    r"\b(?:shows?|showing|reveals?|depicts?|displays?|features(?= an? )|demonstrates?"
    r"|illustrates?|suggests?|suggesting|indicates?"
    r"|indicating|represents?|contains?|confirms?|exhibits?|point(?:s|ing)? to"
    r"|corresponds?(?: (?:most |more )?\w+ly| best)? to|highlights?|presents?(?: with)?"
    r"|(?:(?:is|are|being) )?(?:most |more |best |highly )?(?:consistent with|compatible with"
    r"|suggestive of"
    r"|indicative of|characteristic of|typical (?:of|for)|in keeping with|pathognomonic (?:for"
    r"|of)|classic (?:for|of)|diagnostic of)"
    r"|(?:is|was|are|were|would be|can be)"
    r"(?: (?:most |more )?(?:likely|accurately|closely)| best)?(?: to be)? (?:in|on|at|around"
    r"|within|from|of"
    r"|called|labell?ed|classified as|known as"
    r"|identified as|caused by|due to|(?:located|seen|found|observed|noted|visible|depicted"
    r"|scanned) (?:in|on|at)"
    r"|(?:achieved|attained|reached|obtained|represented|indicated|shown|denoted|marked) by"
    r"|expected (?:in|at|on)"
    r"|best described as|best explained by|explained by|equal to|closest to|most similar to"
    r"|(?:moving|rotating|turning|facing|pointing|going|heading)(?: (?:to|towards?))?"
    r"|(?:taken|acquired|obtained|done|performed|generated|produced|captured|made|created) (?:in"
    r"|with|by|using))"
    r"|at|dates (?:from|to)|made of|attributed to|characteri[sz]ed by|shaped like|composed of"
    r"|means|matches|measures|reads|describes|has|have|favou?rs?"
    r"|lies (?:in|on)|affects|involves|covers|zeigt|sieht|spricht für|montre|muestra|mostra"
    r"|belongs? to|surrounds|outlines|encircles"
    r"|delineates)"
)
# Forms of "be" and "seem", with the German, French, Spanish and Italian ones.
COPULA = (
    r"(?:\b(?:is|are|was|were|will(?: be)?|must be|seems?(?: to be)?|appears?(?: to be)?"
    r"|looks?(?: like)?|would be"
    r"|is (?:most )?likely to be|ist|sind|est|es|è|é|remains)|['’]s)"
)
IMAGING_SUBJECT = (
    r"(?:(?!(?:prior|previous|earlier|old|past|typical|no|other|some|many|most"
    r"|normal)\b)[a-z][\w&/-]*\s+){0,4}?"
    r"(?:images?|imaging|scans?|ct|mri|mr|ultraso\w+|x-?rays?|radiogra\w+|films?|findings?"
    r"|features|appearances?|slides?"
    r"|\w+scop[yi]\w*|\w*(?:path|hist)olog\w+|angiogra\w+|photographs?|arrows?|lungs?|biopsy)"
)
"""Subject of a sentence without an article ("Chest CT shows ...")."""
# Nouns of a sentence about an option that is not the answer.
DISTRACTOR_NOUN = r"(?:distract\w+|traps?|mistakes?|errors?|runner|rule|alternative|tempting|tricks?|question)"
_SUBJECT_WORD = (
    rf"(?!(?:{DISTRACTOR_NOUN}|it|thinks|says?|said|asked|suspected|label|mother|father|history"
    rf"|report|key|user|student|previous|prior|earlier"
    rf"|could|may|might|should|needed|possibilit\w+|consideration|differential"
    rf"|would(?! (?:[a-z]+ ){{0,3}}be\b))\b){UNHEDGED}[^\s.,;:!?]+"
)
SUBJECT = (
    r"(?:(?:the|this|these|that|those|it|he|she|they|both|all|each|shown|here|diese[rs]?|die|das"
    r"|der|la|le|el|cette"
    rf"|esta?|il|{IMAGING_SUBJECT})\b(?:\s+{_SUBJECT_WORD}){{0,25}}?\s*)"
)
OPTION_MODIFIERS = (
    rf"(?:(?:an?|the|some|one|{'|'.join(DIGITS_BY_NUMBER_WORD)}|several|multiple"
    r"|evidence of|signs? of|presence of|features of|appearance of|diagnosis of|case of"
    r"|example of|abnormality in|view of|picture of|image of|"
    rf"(?:{IMAGING_VIEW}\s+)*(?:images?|x-?rays?|radiographs?|scans?|ct|mri|films?|patient|person)"
    r"(?:\s+of\s+(?:[\w']+\s+){1,4}?)?\s*\bwith|most|more|likely|probably|clear|clearly|obvious"
    r"|definite|typical|classic"
    r"|large|small|big|single|consistent with|suggestive of|in|called|known as|due to|to be|about"
    r"|approximately"
    r"|around|exactly|total of|only|human|patient's|indeed|located in|on|indicative of"
    r"|compatible with"
    rf"|{IMAGING_VIEW}|region of|area of|ein|eine|einen|un|une|una|der|die|das|la|le|el"
    rf"|acute)\s+)*+"
    rf"(?:{ADJECTIVE}\s+){{0,3}}(?:(?:[\w-]+\s+){{1,3}}(?=\())?(?:mid-)?"
)
"""Words allowed between verb and option.

Articles, generic words, adjectives ("a benign nevus"), and a synonym before the option in brackets
("kneecap (patella)").
"""
SEEING_CLAUSE = (
    rf"{CLAUSE_OPENING}(?:(?:yes|sure|certainly|okay|ok"
    rf"|well)[,.!]\s+)?(?:{SUBJECT}{ADVERB}?(?:{COPULA}|{SHOWING_VERB})\s+"
    r"|(?:i|we)\s+(?:can\s+)?(?:\w+ly\s+)?(?:see|observe|notice|note|identify|count|find|estimate"
    r"|detect"
    r"|(?:think|believe) (?:it|this) is)\s+"
    r"|(?:there\s+)?(?:is|are|appears? to be|seems? to be)\s+|(?:looks? like|shows?|depicts?)\s+"
    r"|which\s+(?:is(?: typical (?:of|for)| characteristic of| consistent with)?|suggests?"
    r"|indicates?"
    r"|points to|represents)\s+"
    r"|(?:shown|seen|depicted|pictured|outlined|highlighted) (?:here )?(?:is|are)\s+"
    r"|(?:neither|not)\b[^.;:\n]{1,60}[:;]\s*"
    r"|(?:(?:most |highly |very )?(?:likely|probably|suggestive of|consistent with"
    r"|compatible with|indicative of"
    r"|characteristic of|typical (?:of|for))|suggesting|indicating|in favou?r of)\s+"
    r"|(?:该|此|本|这)?(?:图像?|影像|照片|片)?(?:中|上)?(?:显示(?:的是)?|提示|表现为|考虑为?|诊断为?|符合|可见|属于|是|为)[了的]?\s*)"
)
SEEN_LEAD = re.compile(rf"{SEEING_CLAUSE}{OPTION_MODIFIERS}{GAP_BEFORE_OPTION}$")
"""Clause before an option's text which says that the option is seen."""
PREDICATE_LEAD = re.compile(
    rf"{CLAUSE_OPENING}(?:the|this|these"
    rf"|[∠△]\S*)\b(?:\s+{_SUBJECT_WORD},?){{0,25}}?\s+(?:{COPULA}"
    rf"|{SHOWING_VERB})\s+{OPTION_MODIFIERS}{GAP_BEFORE_OPTION}$"
)
"""Like SEEN_LEAD, before the only option that a response names: the subject may contain commas."""
CONDITIONAL_LEAD = re.compile(
    rf"\W*(?:[^,;]{{1,80}},\s+)?if\s+(?!i\b|we\b)[^,;]{{3,100}},\s+{SUBJECT}\s*(?:will"
    rf"|would)\s+(?:{ADVERB})*$"
)
"""Before an option that is a verb, in the consequence of a condition ("If ..., the lens will")."""
COPULA_LEAD = re.compile(
    rf"{CLAUSE_OPENING}{SUBJECT}(?:is|are|must be|would be)\s+{GAP_BEFORE_OPTION}$"
    rf"|(?:(?![不没非错])[^.,;:])*[是为]\s*$"
)
LABELLED_PREDICATE_LEAD = re.compile(
    rf"(?![^;\n]*\b{DISTRACTOR_NOUN}\b)"
    rf"(?:(?!\bleast\b){UNHEDGED}[^;\n]|\bleast\b)*?\b(?:is|are|was|were|must be|would be"
    rf"|should be)\s+{GAP_BEFORE_OPTION}$"
)
"""Before an option with its letter, in any wording ("The least important factor is D) age")."""
REPORT_FIELD_LEAD = re.compile(r"\w\W*[:|–—-]\W*$")
"""Before the value of a report field ("Comparison: none")."""
NONE_OPTION_END = re.compile(
    rf"[\"'”)\]}}*]*(?:{CLAUSE_PAUSE}|{REASON_FOLLOWS}|\s+(?:is|are|was|were|match\w*|appl(?:y"
    rf"|ies)|fits?|seems?|appears?|corresponds?"
    r"|describes?|represents?|shows?|can be seen|would|has|have|does|do|here|in|at|for)\b)"
    r"(?![^.\n]{0,60}\b(?:excluded|ruled out|wrong|incorrect|not (?:correct|right|the)|false"
    r"|unlikely)\b)"
)
"""After "none of the above", if it is one of the options."""
SEEN_FOLLOWS = re.compile(
    r"[\"'”)\]]*(?:\s*\([^()\n]{1,80}\))?\s+(?:is|are|can be"
    r"|appears? to be)\s+(?:\w+ly\s+)?(?:seen|visible|present|shown"
    r"|noted|evident|demonstrated|observed|depicted|displayed|illustrated|highlighted|outlined"
    r"|pictured"
    r"|affected|involved|favou?red|fractured|abnormal|suspected"
    r"|identified|the (?:organ|structure|diagnosis|finding)|diagnosed|most likely"
    r"|what)\b(?!\s+(?:only|if|when|by)\b)"
)
GENERIC_NOUN_FOLLOWS = re.compile(
    r"(?:[\s-](?:chest|brain|abdominal|scan|image|images|imaging|view|plane|sequence|slice"
    r"|section|stud(?:y|ies)|weight(?:ed|ing)|technique|profile|region|area|organ"
    r"|gland|colou?r|type|modality|projection|orientation|film|radiograph|examination|exam"
    r"|picture|level|stage|disease"
    r"|side|position|direction|shape|stain|lesion|finding|tissue|cells?|fracture|photograph|photo"
    r"|mri|ct|x-ray|bone"
    r"|artery|vein|lobe|lung|cancer|tumou?r|quadrant|corner|half|segment|portion|part))+(?![\w-])"
)
"""Generic nouns after an option's text that do not change its meaning ("coronal view")."""
SIDED_NOUN_FOLLOWS = re.compile(
    r"(?:[ -](?!(?:and|or|of|than|but|nor|is|are|appears?|would|could|may|might|can|should|will"
    r"|to|not|in|on|with|as|because|when|while|[a-z]+ed|open|alone|out)\b)[a-z]+){1,3}"
)
"""The noun after "left" or "right", if these are the options."""
COUNTED_NOUN_FOLLOWS = re.compile(
    r"°|\s+(?!(?:or|to|and|mm|cm|m|kg|mg|g|ml|hz|hu|times|years?|months?|days?|weeks?|hours?|more"
    r"|minus|plus"
    r"|percent|of|in|on|is|as|because|would|could|may|might|can|should|will)\b)[a-z]+"
    r"(?:\s+[a-z]+)?(?=\s*(?:$|[.,;!\n]|in\b|on\b|visible|shown|seen|present|total))"
)
"""The counted noun after a number."""
UNIT_FOLLOWS = re.compile(rf"(?: ?°|{UNIT_SUFFIX.pattern}(?:\^?[23])?)(?!\w)")
"""The unit after a number that follows its option letter."""
LETTER_THEN_SENTENCE = re.compile(r"\W?[A-Z]\W{0,2}\.\W{0,2}\s[A-Z]\w+ (?!\W)")
"""A letter and a full stop, then a sentence that starts with that option.

For example "(A). Salami has ...".
"""
UNPUNCTUATED_SENTENCE = re.compile(r"\s[A-Z][a-z]+\s[a-z]")
"""A sentence that starts without a full stop before it ("(B) 45 minutes The bus leaves ...")."""
IMAGE_SUBJECT_LEAD = re.compile(
    r"(?:^|\b(?:the|this|that|these)\s+(?:[\w-]+\s+)?|diese[rs]?\s+|das\s+|der\s+)(?:image|x-?ray"
    r"|radiograph|scan|study"
    r"|film|fundus|eye|tissue|exam\w*|appearance|chest|finding|result|mri|ct|it|this|that|bild"
    r"|befund|answer|picture"
    r"|photo|slide|structure|side|lesion|statement|claim)s?\b[^,;]*$"
)
# After such a word, another option is only a neighbour or a contrast.
CONTRAST_WORD = re.compile(
    r"\b(?:below|beneath|next|near|adjacent|beside|behind|above|lateral|medial|anterior|posterior"
    r"|lies"
    r"|between|from|not|no|nor|than|instead|unlike|opposed|neither|but|without|excluded?|however"
    r"|although|because"
    r"|since|as)\b"
)
_LIST_ANNOUNCEMENT = re.compile(r"\b(?:options?|choices?|following|each|all|these|those|consider\w*)\b")
LIST_ITEM_CHARACTERS = " \n-*•\"'(["
"""Characters allowed before the letter of a list item."""


def announces_list(text_before: str) -> bool:
    """Return True if the line before an item announces a list ("Consider these options:").

    The cheap test of the line's end comes first, so other lines are not searched.
    """
    line = text_before.rstrip(LIST_ITEM_CHARACTERS).rpartition("\n")[2]
    return line.endswith(":") and not re.search(r"\bis:$", line) and _LIST_ANNOUNCEMENT.search(line) is not None


AND_LEAD = re.compile(r"\band \W*$")
ANSWER_LEAD = re.compile(r"\banswers?(?: is)?\W*$")
SENTENCE_CONTINUES = re.compile(r"(?<![.:)])\s\w")
LABEL_DELIMITER = re.compile(r"(?:[.:)]|(?<=[)\]}]))\s+\w")
UNTICKED_LEAD = re.compile(r"(?:\[\s*\]|[☐✗❌✘×])\W{0,4}$")
POINTING_LEAD = re.compile(
    rf"^(?!.*\b(?:not|no|less|nor|neither)\b).*(?:\b(?:is|are)|{SHOWING_VERB})\s+{OPTION_NOUN}\s*\W?$",
    re.DOTALL,
)
ITEM_NUMBER = re.compile(r"(?:^|\n)\W*\d{1,2}[.)]\s")
ADVERSATIVE = re.compile(r"\b(?:but|however|yet)\b")
