"""Find what a response claims of its options, by a closed grammar: clauses that name an option as the answer, or as what is seen.

A mention counts where the words before it, from the beginning of its clause, and the words after it are of a form listed here.
Whatever else a sentence says of an option (next to something, suspected by somebody, to be excluded) has none of these forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from eval_harness.reader.mentions import Mention, PlainResponse
from eval_harness.reader.options import COMMON, EVERYDAY, NUMBER_WORDS
from eval_harness.reader.text import CJK

Kind = Literal["answer statement", "statement", "verdict", "leading option", "last line", "option seen"]


@dataclass(frozen=True, slots=True)
class OptionClaim:
    """Options claimed at text[place]; () where it is unclear which of several. `kind` is the rule that finds it."""

    kind: Kind
    place: int
    options: tuple[int, ...]


# --- the grammar, in lower case: words ---

_ADVERB = (
    r"(?:(?:very|most|more|quite|highly|almost|absolutely|definitely|certainly|clearly|probably|likely|indeed|simply"
    r"|therefore|thus|hence|then|also|actually|in fact|just|only|obviously|apparently|still|now|primarily|mainly"
    r"|predominantly|essentially|typically|specifically|by far|best|really|instead|perhaps|possibly|maybe)\s+)"
)
_VIEW = (
    r"(?:chest|abdominal|axial|coronal|sagittal|plain|frontal|lateral|contrast-enhanced|non-contrast|head|brain|cardiac"
    r"|fundus|pelvic|human|t[12](?:-?weighted|w)|pa|ap|portable|transverse)"
)
_ADJECTIVE = (
    r"(?:(?:left|right|upper|lower|middle|large|small|big|mild|moderate|severe|acute|chronic|subacute|single|benign|new|old"
    r"|round|tension|simple|early|late|massive|gross|dense|thick|thin|clear)|(?!(?:suspected|potential|treated|resolved|healed"
    r"|excluded|presumed|feared|suggested|denied|considered|drained|supposed|so-called|different|hypothetical|adjacent"
    r"|contralateral|unrelated|noted|showed|revealed|separate|differential|alternative|near|similar|absent|negative"
    r"|normal|patient|content|extent|equivocal|previous|simulated|repaired|removed|cured|missed|reported|mentioned|described|expected|imaginary|apparent)\b)"
    r"[a-z-]{2,}(?:al|ar|ic|ous|ive|ary|oid|(?<!m)ent|ant|ed|ate)\b)"
)
"""What may stand before an option and leaves it the same option ("a solitary pulmonary nodule")."""
_ADJECTIVES = re.compile(rf"(?:{_ADJECTIVE}\s+){{1,3}}$")
_ARTICLE = r"(?:(?:an?|the|one|some|la|le|les|el|die|der|das|den|ein|eine|einen|un|una|une|il|lo)\s+|l')"
_NOUN = (
    r"(?:options?|choices?|answers?|letters?|statements?|opción|opção|opzione|antwort|réponse|respuesta"
    r"|alternativa|proposition"
    r"|选项|选择|选|答)"
)
_GAP = (
    r"(?:[\s\"'“”«»(\[{<⟨「*#>•☑✓✔✅👉➡→\d.)-]*(?:(?:both|either)\s+)?"
    rf"(?:{_ADVERB}|{_ARTICLE})*+(?:{_NOUN}\s*[:#]?)?[\s\"'“«(\[{{<⟨「*]*)"
)
"""Between a frame and the option that it names."""
_CLAUSE = re.compile(
    r"^|[.!?;:,(\n–—✓✔✅✗❌【】]\s*|\s-\s|\s(?==>|->|→|⇒|∴)|因此|所以|故|只有"
    r"|\b(?:mak(?:es?|ing)|so|but|and|therefore|thus|hence|however|then|because|since|yet|now|while|donc|por (?:lo )?tanto|daher|somit"
    r"|deshalb|(?<!not )(?:confident|certain|sure|clear) that|(?:to )?gets?|gives|creo que|je pense que"
    r"|ich denke,? dass|(?:i|we) (?:think|believe|conclude"
    r"|suspect|would say)(?: that)?|here(?: is|['’]s)(?= (?:my|the) )"
    r"|(?:suggest|indicat|mean|conclud|confirm|infer|determin)\w* that)[\s,]+"
)
"""Before a clause."""
_OPENING = r"[\s\"'*#>•-]*"
_UNSURE = (
    r"(?!\b(?:not|no|non|less|nothing|hardly|never|nor|neither|wrong|incorrect|incorrectly|false|if|whether|unless|either|others?|another"
    r"|least|depends|unclear|between|could|might|may|cannot|unknown|nicht|pas|kein\w*|eliminated|excluded|discarded|rejected"
    r"|falsch\w*)\b|[不没非错])"
)
_RATED = (
    r"(?:(?!(?:final|correct|selected)\s*[:=–-])(?:very|final|corrected|correct|best|right|only|likely"
    r"|likeliest|probable"
    r"|plausible|appropriate|suitable|accurate|fitting|consistent|most|more|overall|single|chosen|selected"
    r"|predicted|true"
    r"|my|our|the|an?|its|this|primary|working|main|suggested|richtige|korrekte|meine|die|das|la|le|bonne|ma"
    r"|meilleure|correcta|mi|corretta|правильный|верный|juiste|het|poprawna|prawidłowa|doğru)\b\s*"
    r"|正确的?|最终|最佳|最可能的?|सही\s*)*+"
)
_ANSWER_WORD = (
    r"(?:answers?|ans|option|choice|output|final|correct|antwort|lösung|respuesta|réponse|opción|risposta|resposta|ответ"
    r"|antwoord|odpowied[zź]|odpověď|cevap|svar|vastaus|jawaban|válasz|答案|答え|正解|답변?|정답|الإجابة|उत्तर)"
)
_CUE = (
    rf"(?:{_ANSWER_WORD}|letter|(?<=correct )(?:options|choices)|response|select(?:ion|ed)|prediction|pick|guess"
    r"|conclusion|verdict|diagnosis|dx|diagnostic|diagnóstico|impression|classification|interpretation|description"
    r"|finding|modality|result|label|class|category|diagnose|alternativa|proposition|correcta|选项|诊断|结论)"
)
_LINK = (
    r"(?:\s*(?:\b(?:is|are|was|would be|should be|must be|will be|has to be|seems to be|appears to be|be|remains|ist"
    r"|lautet|wäre|est|es|sería|è|é|as)\b|['’]s\b|[:=】](?!=)|=>|-+>|[→⇒➜]|–|—|\s-(?=\s)"
    r"|\b(?:هي|هو)\b|[是为為はは은는选](?::\s*)?|(?<=ans)\.|\n)\s*)+"
)
_TAKES_BACK = (
    r"(?:wait|hold on|correction|corrected|scratch that|strike that|on (?:second|closer|further|a second) \w+"
    r"|(?:take|took) (?:that|it) back|misread|misspoke|was wrong|a mistake|an error|my mistake|let me re\w+"
    r"|let me (?:look|check|think) again|i mean|edit(?=\s*:)|actually|no,? (?:wait|it is|that is)"
    r"|(?:change|revise|changing|revising) (?:my|the) answer|不对)"
)
CORRECTION = re.compile(rf"\b{_TAKES_BACK}\b|(?<=[.,;…] )no(?=, )|不对")
"""What takes back the statements before it, where others follow."""

# --- clauses before an option that state it as the answer ---

_ANSWERS = re.compile(
    rf"{_OPENING}(?:{_TAKES_BACK}(?:\s*(?:[,.:;!…–-]+|\bno\b|\bit is\b|\bthat is\b|\bmake that\b))+\s*|no,\s+"
    rf"|{_RATED}{_ANSWER_WORD}(?![^\W_{CJK}])(?:{_UNSURE}[^.:=?!;\n])*?{_LINK}){_GAP}$"
)
"""One that names the answer outright ("Answer: B"): it comes before conclusions on the way ("so it is B")."""
_STATES = re.compile(
    rf"{_OPENING}(?:"
    rf"{_RATED}{_CUE}(?![^\W_{CJK}])(?:{_UNSURE}[^.:=?!;\n])*?{_LINK}"
    r"|(?:i|we)(?:['’]d|['’]ll|['’]m)?(?:\s+(?:will|would|have to|must|can|should|do|am|\w+ly|rather|still|now))*\s+"
    r"(?:choose|chose|pick|picked|select|selected|go with|going with|go for|settle on|settle for|opt for|vote for"
    r"|lean(?:ing)? towards?|lean to|favou?r|answer|guess|say|think|believe|conclude|suspect|(?:classify"
    r"|grade) (?:it|this) as)"
    r"(?:\s+that)?(?:\s*,?\s*(?:it(?:\s+is|['’]s)|this is|the (?:correct |best |right )?answer is))?[\s:]+"
    r"|(?:let us |let's )?(?:go(?:ing)? with|choos(?:e|ing)|select(?:ing)?|pick(?:ing)?|settle on|yes,)\s+"
    r"|(?:if i )?(?:forced|had) to (?:choose|guess|pick|answer)\s*[,:]\s*"
    r"|(?:so|thus|therefore|hence|consequently|finally|overall|ultimately|in conclusion|in summary"
    r"|final(?: answer)?|∴|⇒"
    r"|=>|->|→|donc|por (?:lo )?tanto|daher|somit|因此|所以|故)[\s,:]*"
    r"(?:(?:it|this|that)\s*(?:is|must be|should be|has to be|would be|['’]s)|we (?:have|get|choose)"
    r"|i (?:choose|pick|select)|(?:the|my) (?:\w+ )?answer is)?\s*"
    r"|(?:(?:it|this|that)\s*)?(?:(?:is|must be|should be|has to be|would be)\b|(?<=[it])['’]s)\s*"
    r"|(?:(?:this|that|which|it)\s+)?leav(?:es|ing)(?:\s+(?:us|me))?(?:\s+with)?\s+"
    r"|(?:we|i)(?:\s+are|\s+am|['’]re|['’]m)\s+left\s+with\s+"
    r"|(?:i (?:would |will )?)?(?:chang|revis|updat|correct|switch)(?:e|ing|)(?:\s+(?:my|the)\s+(?:answer|choice"
    r"|response))?(?:\s+from\s+[^.\n]{1,40}?)?\s+to\s+"
    r"|between\b[^.;\n]{1,60},\s*|[^.;,:\n]{1,40}\b(?:vs\.?|versus)\s[^.;,:\n]{1,40}:\s*"
    r"|(?:am wahrscheinlichsten )?(?:ist|es|est)\s+|ich entscheide mich für\s+|ich würde\s+|il s['’]agit de\s+|而是"
    r"|(?:richtig|korrekt)\s+(?:ist|wäre)\s+|(?:ich|je|yo)\s+(?:wähle|nehme|choisis|elijo)\s+"
    r"|(?:elijo|escojo|scelgo|escolho|opto por)\s+|c['’]est\s+|(?:我的?)?(?:选择?|選擇?)(?:的?是)?\s*:?\s*|应该?(?:为|选|是)\s*"
    rf"){_GAP}$"
)
_NOT_BUT = re.compile(
    r"\bnot\b(?!\s+only)[^.;\n]{1,80}?,?\s+but\s+(?:rather\s+)?(?:(?:in|on|at|of|from|it is|is|an?|the|option)\s+)*\W?$"
)
_NAMES = re.compile(
    rf"{_OPENING}(?:ist\s+)?(?:{_ADVERB}|{_ARTICLE})*+(?:{_NOUN}\s*)?(?:{_ADJECTIVE}\s+){{0,3}}[\"'*(\[]*$"
)
"""The beginning of a clause, and perhaps "option"."""
_TICK = re.compile(
    r"(?:^|\n|[;,])\s*(?:[-•*]\s*|\d+[.)]\s*)?(?:\[\s*[x✓✔✅]\s*\]|[✓✔✅☑👉➡→])\s*(?:option\s+)?[\"'(\[*]*$"
)
_ALONE = re.compile(
    rf"[^\w✗❌✘×]*(?:(?:\d{{1,2}}|[a-z])[.)]\s+)?(?:(?:must be\s+|about\s+|approximately\s+|{_VIEW}\s+"
    rf"|{_ARTICLE}|{_ADVERB}|{_ADJECTIVE}\s+))*+(?:(?:[\w-]+\s+){{1,3}}(?=\())?(?:{_NOUN}\s*)?[\"'(\[{{<*]*"
)
"""What may stand before an option in a sentence that is nothing else."""
_WITHIN = re.compile(r"\W*(?:it is\s+)?(?:in|on|at|within)\s+(?:the\s+)?")
"""The same, where nothing follows ("In the pelvis.")."""
_HYPOTHETICAL = re.compile(
    r"\b(?:if|unless|whether|had it|were it|otherwise|suppose|assuming|should (?:the|it|there))\b"
    r"(?!\s+(?:i|we|you)\s+(?:had|have|must|were|look|consider|compare|use|examine|focus|count)|\s+(?:forced|asked|anything))"
    r"|\baccording to (?!the (?:\w+ )?(?:image|picture|scan|findings?|x-?ray|radiograph|chart|figure|graph"
    r"|criteria)|this\b)"
    r"|如果|假如|要是|\b(?:wenn|falls|sofern)\b(?!\s+ich)|\bsi (?:l[ae]s?|el|los|il|elle|on|hay|se)\b"
    r"|\b(?:initially|originally|at first|previously|earlier|first (?:thought|guess|impression|glance|choice|answer)"
    r"|second (?:guess|choice)|previous answer|tempted|(?:might|could) (?:think|say|choose)"
    r"|(?:student|user|resident|colleague|radiologist|textbook|key)['’]?s (?:answer|choice|guess|diagnosis)"
    r"|(?:you|he|she|they|user|key|others?|some|students?|colleagues?|report) (?:would |might |may )?"
    r"(?:said|says?|suggest(?:s|ed)?|claims?|thinks?|answers?|choose))\b"
)
"""A sentence that only supposes, remembers or reports what it states."""

# --- what stands after an option ---

_CLOSE = r"[\"'”»)\]}>*]*(?:\s*\((?!\s*\w\s*\))[^()\n]{1,120}\))?"
_PAUSE = (
    r"(?:\s*(?:$|[.!;)|\n]|\(|:(?!\s*\.?\d)|[-–—](?![\w>])"
    r"|,(?!\s*(?:but also|as well as|or|and also|if|unless|also(?! known| called))\b))"
    rf"|\s+(?:probably|for sure|i think|i believe|it is)\W*$|\s*[{CJK}])"
)
_BECAUSE = (
    r"\s+(?:because|since|as(?! well)|due|given|based|rather than|instead of|not|unlike|but(?! also)|although|though"
    r"|while|whereas|over)\b"
)
_PLACE = (
    r"\s+(?:in|on|at|of|with|from|by|for|to|which|that|than|where|located|seen|shown|visible|present|involving"
    r"|affecting|within|near|along|and|using|here|is the|are the)\b"
)
_ENDS = re.compile(rf"{_CLOSE}(?:{_PAUSE}|{_BECAUSE}|{_PLACE})")
_ENDS_LETTER = re.compile(
    rf"\s*[.:)\]](?!\S)(?!\s*\.?\d)|{_CLOSE}(?:{_PAUSE}|{_BECAUSE}|\s+(?:with|for|from|in|on|at|which|that"
    rf"|qui|to me|here|and|fits|wählen"
    r"|is (?:the|my) (?:best|correct|right|most|answer|final))\b)"
)
_ENDS_WORD = re.compile(
    rf"[\"'”)\]}}*]*(?!\.\s*(?:of\b|\d))(?:{_PAUSE}|{_BECAUSE}|\s+(?=(?:it|there|they|this|that"
    rf"|i)\b))(?!\s*(?:(?:wait|hold on|let me|please|that is an? (?:great|good)"
    r"|(?:of course,? )?i understand|(?:of course,? )?i (?:can|will|would be happy to"
    r"|am able to) (?:\w+ )?(?:help|assist|answer|look|analy[sz]e)"
    r"|i (?:can )?see (?:the|your|an?) (?:image|picture))\b))"
)
"""After yes or no: not "No. 3", "Yes, I can help"."""
_OR = re.compile(r"\s*(?:/|\b(?:or|but also|as well as)\b)")
_CLOSES = re.compile(r"[\"'”»)\]}*]*\s*(?:$|[.!](?!\d)|\n)")
_ENDS_LINE = re.compile(r"\s*[\"'”»)\]}*.,;!]*\s*(?:$|\n)")
_LEADS = re.compile(rf"{_CLOSE}(?!:)(?:{_PAUSE}|{_BECAUSE}|\s+(?:in|on|with|of)\b)")
_NEGATION = (
    r"(?:(?:not|no|nor|neither|incorrect|wrong|false|unlikely|improbable|absent|ruled out|excluded|eliminated|out|less"
    r"|never|cannot|can not|at first|would|does|do|did|could|may|might|was my|only if|if|unless)\b|[✗❌✘×])"
)
_WRONG = (
    r"(?:(?:incorrect|wrong|false|unlikely|improbable|absent|ruled out|excluded|eliminated|no(?!\w|,)|none"
    r"|not (?:correct|likely|present|seen|visible|supported|consistent|true|applicable|the (?:answer"
    r"|correct)))\b|[✗❌✘×])"
)
_UNDONE = re.compile(
    rf"(?:[^()\n]{{0,60}}+\))?{_CLOSE}[^\S\n]*(?:(?:[-–—:]+[^\S\n]*)?(?:,?\s*(?:this|it|that|option"
    rf"|which)?[^\S\n]*(?:is|are|was)\s+"
    rf"(?:\w+ly\s+)?)?{_NEGATION}|[.,(]+[^\S\n]*(?:(?:this|it|that|which)\s+(?:is|was)\s+)?{_WRONG})"
)
"""After an option: what takes back that it is the answer ("A: incorrect", "B - not seen")."""
_CALLED_WRONG = re.compile(rf"\s*[-–—:(]\s*{_WRONG}")
_VERDICT = re.compile(
    r"[\"'”)\]}*]*[^\S\n]*[✓✔✅]|"
    r"[\"'”)\]}*]*(?:\s*,?\s*\([^()\n]{1,120}\))?(?:"
    r"\s*(?:,\s*)?(?:is|are|would be|seems|appears|appears to be|must be|remains|as|looks|represents|seems to be"
    rf"|should be|wäre|ist|est|es|è|é)\s+(?:{_ADVERB}|(?:the|my|an?|both|die|das|la|le|{_NOUN})\s+)*"
    r"(?:bonne\s+|richtige\s+|better\s+)?"
    r"(?:correct|right|true|best|likeliest|(?:most|more) (?:likely|probable|plausible|appropriate|accurate|suitable"
    r"|consistent|fitting|compatible|sensible|reasonable)|most \w+ (?=option|choice|answer)|answers?|choices?"
    r"|réponse|antwort"
    r"|exacte|likely|richtige?|korrekte?|correcte?|correcta|juste|corretta"
    r"|remaining (?:option|choice|answer))"
    r"|[^\S\n]*[:=.)|–—-]+[^\S\n]*(?:this is |is )?(?:the )?(?:correct|true|yes|present|right(?=\W*(?:$|\n|[.,;]))"
    r"|most (?:likely|consistent)|best (?:fit|match|answer|choice)|fits best|✓|✔|✅)"
    r"|\s+remains(?=\W*(?:$|\n))|\s+(?:richtig|korrekt)(?: ist| wäre)?|\s+die richtige|\s+(?:the"
    r"|my) (?:most \w+|best|correct)"
    r"|\s+(?:best )?(?:fits|matches|describes)(?: best| the (?:image|picture|findings?|description)(?: best)?)"
    r"|\s+(?:it is|wins)\b|\s*(?:是|为|選項|选项)*(?:正确|最佳|对|最合适|最可能)"
    rf")(?:['\"”)\]*]*\s*(?:$|[.,;:!\n)|–—-]|{_NOUN}|one\b|diagnos\w+|finding|description|interpretation|explanation"
    r"|match|fit\b|here|because|since|as\b|given|based|in this|for this|than\b|due|的|[✓✔✅]))"
)
"""After an option: what calls it the right one."""

# --- what is seen ---

_SHOWN = (
    r"\b(?:shows?|showing|reveals?|depicts?|displays?|demonstrates?|illustrates?|suggests?|suggesting|indicates?"
    r"|indicating|represents?|contains?|confirms?|exhibits?|point(?:s|ing)? to|corresponds? to|highlights?|presents?(?: with)?"
    r"|(?:(?:is|are|being) )?(?:most |more |best |highly )?(?:consistent with|compatible with|suggestive of"
    r"|indicative of|characteristic of|typical (?:of|for))|(?:is|was|are|were|would be) (?:in|on|around|within|from|of"
    r"|called|labell?ed|classified as|known as"
    r"|identified as|caused by|due to|located (?:in|on|at)|seen (?:in|on|at)|best described as"
    r"|best explained by|explained by|equal to|closest to"
    r"|(?:taken|acquired|obtained|done|performed) (?:in|with|by|using))|means|matches|measures|reads"
    r"|describes|has|have|favou?rs?"
    r"|lies (?:in|on)|affects|involves|covers|zeigt|sieht|spricht für|montre|muestra|mostra|belongs? to|surrounds|outlines|encircles"
    r"|delineates)"
)
_COPULA = (
    r"(?:\b(?:is|are|was|were|must be|seems?(?: to be)?|appears?(?: to be)?|looks?(?: like)?|would be"
    r"|is (?:most )?likely to be|ist|sind|est|es|è|é|remains)|['’]s)"
)
_IMAGING = (
    r"(?:(?!(?:prior|previous|earlier|old|past|typical|no|other|some|many|most|normal)\b)[a-z][\w&/-]*\s+){0,4}?"
    r"(?:images?|imaging|scans?|ct|mri|mr|ultraso\w+|x-?rays?|radiogra\w+|films?|findings?|features|appearances?|slides?"
    r"|\w+scop[yi]\w*|\w*(?:path|hist)olog\w+|angiogra\w+|photographs?|arrows?|lungs?|biopsy)"
)
"""The subject of a sentence without an article ("Chest CT shows ...")."""
_NOT_CHOSEN = r"(?:distract\w+|traps?|mistakes?|errors?|runner|rule|alternative|tempting|tricks?|question)"
_SUBJECT = (
    r"(?:(?:the|this|these|that|those|it|he|she|they|both|all|each|shown|here|diese[rs]?|die|das|der|la|le|el|cette"
    rf"|esta?|il|{_IMAGING})\b(?:\s+(?!(?:{_NOT_CHOSEN}|it|thinks|says?|said|asked|suspected|label|mother|father|history|report|key"
    rf"|user|student|previous|prior|earlier|would|could|may|might|should|needed)\b){_UNSURE}[\w/'’()=%°\"-]+){{0,25}}?\s*)"
)
_QUALITY = (
    rf"(?:(?:an?|the|some|one|{'|'.join(NUMBER_WORDS)}|several|multiple"
    r"|evidence of|signs? of|presence of|features of|appearance of|diagnosis of|case of"
    r"|example of|view of|picture of|image of|most|more|likely|probably|clear|clearly|obvious|definite|typical|classic"
    r"|large|small|big|single|consistent with|suggestive of|in|called|known as|due to|to be|about|approximately"
    r"|around|exactly|total of|only|human|patient's|indeed|located in|on|indicative of|compatible with"
    rf"|{_VIEW}|region of|area of|ein|eine|einen|un|une|una|der|die|das|la|le|el|acute)\s+)*+"
    rf"(?:{_ADJECTIVE}\s+){{0,3}}(?:(?:[\w-]+\s+){{1,3}}(?=\())?(?:mid-)?"
)
"""Between the verb and the option: articles, generic words, adjectives ("a benign nevus"), another name ("kneecap (patella)")."""
_SEEN = re.compile(
    rf"{_OPENING}(?:(?:yes|sure|certainly|okay|ok|well)[,.!]\s+)?(?:{_SUBJECT}{_ADVERB}?(?:{_COPULA}|{_SHOWN})\s+"
    r"|(?:i|we)\s+(?:can\s+)?(?:\w+ly\s+)?(?:see|observe|notice|note|identify|count|find|estimate|detect"
    r"|(?:think|believe) (?:it|this) is)\s+"
    r"|there\s+(?:is|are|appears? to be|seems? to be)\s+"
    r"|which\s+(?:is(?: typical (?:of|for)| characteristic of| consistent with)?|suggests?|indicates?"
    r"|points to|represents)\s+"
    r"|(?:shown|seen|depicted|pictured|outlined|highlighted) (?:here )?(?:is|are)\s+"
    r"|(?:neither|not)\b[^.;:\n]{1,60}[:;]\s*"
    r"|(?:(?:most |highly |very )?(?:likely|probably|suggestive of|consistent with|compatible with|indicative of"
    r"|characteristic of|typical (?:of|for))|suggesting|indicating|in favou?r of)\s+"
    r"|(?:该|此|本|这)?(?:图像?|影像|照片|片)?(?:中|上)?(?:显示(?:的是)?|提示|表现为|考虑为?|诊断为?|符合|可见|属于|是|为)[了的]?\s*"
    rf"){_QUALITY}{_GAP}$"
)
"""The clause before an option's text that says that it is seen."""
_IS = re.compile(rf"{_OPENING}{_SUBJECT}(?:is|are|must be|would be)\s+{_GAP}$")
_IS_LABELLED = re.compile(
    rf"(?![^;\n]*\b{_NOT_CHOSEN}\b)"
    rf"(?:(?!\bleast\b){_UNSURE}[^;\n]|\bleast\b)*?\b(?:is|are|was|were|must be|would be|should be)\s+{_GAP}$"
)
"""Before an option with its letter, in whatever words the question asks for it ("The least important factor is D) age")."""
_NONE_HOLDS = re.compile(
    rf"[\"'”)\]}}*]*(?:{_PAUSE}|{_BECAUSE}|\s+(?:is|are|was|were|match\w*|appl(?:y|ies)|fits?|seems?|appears?|corresponds?"
    r"|describes?|represents?|shows?|can be seen|would|has|have|does|do|here|in|at|for)\b)"
    r"(?![^.\n]{0,60}\b(?:excluded|ruled out|wrong|incorrect|not (?:correct|right|the)|false|unlikely)\b)"
)
"""After "none of the above", where the options have it."""
_SEEN_AFTER = re.compile(
    r"[\"'”)\]]*(?:\s*\([^()\n]{1,80}\))?\s+(?:is|are|can be)\s+(?:\w+ly\s+)?(?:seen|visible|present|shown"
    r"|noted|evident|demonstrated|observed|depicted|displayed|illustrated|highlighted|outlined|pictured"
    r"|affected|involved|fractured|suspected"
    r"|identified|the (?:organ|structure|diagnosis|finding)|diagnosed|most likely|what)\b(?!\s+(?:only|if|when|by)\b)"
)
_KIND_OF = re.compile(
    r"(?:[\s-](?:scan|image|images|imaging|view|plane|sequence|slice|section|stud(?:y|ies)|weighted|region|area|organ"
    r"|gland|colou?r|type|modality|projection|orientation|film|radiograph|examination|exam|picture|level|stage|disease"
    r"|side|position|direction|shape|stain|lesion|finding|tissue|cells?|fracture|photograph|photo|mri|ct|x-ray|bone"
    r"|artery|vein|lobe|lung|quadrant|corner|half|segment|portion|part))+(?![\w-])"
)
"""Generic nouns after an option's text that leave it the same option ("coronal view", "a CT scan")."""
_OF_SIDE = re.compile(
    r"(?:[ -](?!(?:and|or|of|than|but|nor|is|are|to|not|in|on|with|as|because|when|while|[a-z]+ed|open|alone|out)\b)[a-z]+){1,3}"
)
"""What is left or right, where that is what the options are."""
_MEASURE = re.compile(
    r"\s+(?!(?:or|to|and|mm|cm|m|kg|mg|g|ml|hz|hu|times|years?|months?|days?|weeks?|hours?|more|minus|plus"
    r"|percent|of|in|on|is|as|because)\b)[a-z]+"
    r"(?:\s+[a-z]+)?(?=\s*(?:$|[.,;!\n]|in\b|on\b|visible|shown|seen|present|total))"
)
"""What is counted, after a number."""
_OF_IMAGE = re.compile(
    r"(?:^|\b(?:the|this|that|these)\s+(?:[\w-]+\s+)?|diese[rs]?\s+|das\s+|der\s+)(?:image|x-?ray|radiograph|scan|study"
    r"|film|fundus|eye|tissue|exam\w*|appearance|chest|finding|result|mri|ct|it|this|that|bild|befund|answer|picture"
    r"|photo|slide|structure|side|lesion)s?\b[^,;]*$"
)
_CONTRAST = re.compile(
    r"\b(?:below|beneath|next|near|adjacent|beside|behind|above|lateral|medial|anterior|posterior|lies"
    r"|between|from|not|no|nor|than|instead|unlike|opposed|neither|but|without|excluded?|however|although|because"
    r"|since|as)\b"
)
_OPENS_LIST = re.compile(r"\b(?:options?|choices?|following|each|all|these|those|consider\w*)\b[^\n]*:$")


# --- the mentions that are claims ---


def claims(said: PlainResponse) -> Iterator[OptionClaim]:
    """Every claim in the order of the text."""
    start, stop = said.listed
    items = _items(said)
    inline = items if items and "\n" not in said.text[min(items) : max(items)].rstrip() else set()
    for at, mention in enumerate(said.mentions):
        if start <= mention.start < stop and not _TICK.search(said.before(mention.start)):
            continue
        if said.options.lone and mention.crossed and not _ANSWER.search(said.lead(mention.start)):
            continue  # an option that is itself a letter: the figure's, or the place?
        kind = _kind(said, at, bool(items))
        if kind == "answer statement" and mention.start in inline:
            continue
        if kind in ("verdict", "answer statement") or (kind is not None and mention.start not in items):
            before = said.lead(mention.start)
            if said.is_asked(mention) or _HYPOTHETICAL.search(before, _turn(before)):
                continue
            unclear = (mention.crossed and not said.options.lone) or -2 in mention.options or mention.either
            unclear |= (len(mention.options) > 1 or _and_another(said, at)) and not said.multiple
            yield OptionClaim(kind, mention.start, () if unclear else mention.options)


def _and_another(said: PlainResponse, at: int) -> bool:
    """True if the sentence goes on with another option and its letter ("(A) 3 mm for the left and (B) 5 mm for the right")."""
    mention, following = said.mentions[at], said.mentions[at + 1] if at + 1 < len(said.mentions) else None
    if following is None or not following.bracketed or not following.text or following.options == mention.options:
        return False
    return _AND.search(said.lowered, mention.end, following.start) is not None and (
        following.start < said.sentence(max(mention.end - 1, 0))[1]
    )


_AND = re.compile(r"\band \W*$")
_ANSWER = re.compile(r"\banswers?(?: is)?\W*$")


def _items(said: PlainResponse) -> set[int]:
    """Where the items stand of a list of options, by their letters: such a mention says nothing by its place."""
    lines = [
        mention
        for mention in said.named
        if mention.letter and said.begins_line(mention) and (mention.text or not _GOES_ON.match(said.text, mention.end))
    ]
    named = {mention.options for mention in lines}
    if said.multiple:
        return {mention.start for mention in lines} if len(named) == said.count else set()
    labels = [each for each in said.named if each.letter and (each.text or _IS_LABEL.match(said.text, each.end))]
    in_order = [each.options for each in labels[: said.count]] == [(place,) for place in range(said.count)]
    if in_order:
        last = labels[said.count - 1]
        stop = last.end if last.text else said.line_end(last.end)
        return {mention.start for mention in said.mentions if labels[0].start <= mention.start < stop}
    return {mention.start for mention in lines} if len(named) > 1 else set()


_GOES_ON = re.compile(r"(?<![.:)])\s\w")
_IS_LABEL = re.compile(r"(?:[.:)]|(?<=[)\]}]))\s+\w")


class _Lead:
    """The words before an option."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def clauses(self) -> list[int]:
        return [clause.end() for clause in _CLAUSE.finditer(self.text)]

    def has(self, form: re.Pattern[str]) -> bool:
        """True if a clause has this form from its beginning to the option."""
        return any(form.match(self.text, start) for start in self.clauses)


def _kind(said: PlainResponse, at: int, listing: bool) -> Kind | None:
    mention = said.mentions[at]
    before, end = said.lead(mention.start), _noun_end(said, mention)
    lead = _Lead(before)
    tail = said.lowered[end : end + 160]
    if tail[:1] == "?" and any(option.endswith("?") for option in said.options.plain):
        tail = "." + tail[1:]
    if _is_number_of_item(said, mention, tail):
        return None
    labelled, undone = mention.letter and mention.text, said.lettered and _UNDONE.match(tail) is not None
    if (_TICK.search(before) and not undone) or (_VERDICT.match(tail) and (lead.has(_NAMES) or lead.has(_STATES))):
        return "verdict"
    if _UNTICKED.search(before):
        return None
    closed = _closed(said, mention, tail)
    if closed and not _CALLED_WRONG.match(tail) and not _agrees(said, mention, before):
        if lead.has(_ANSWERS):
            return "answer statement"
        if lead.has(_STATES):
            return "statement"
    if undone:
        return None
    if closed and mention.letter and (lead.has(_SEEN if mention.text else _IS) or _POINTS_TO_OPTION.match(before)):
        return "statement"
    bracketed = mention.bracketed and mention.letter
    if (
        (labelled or bracketed)
        and not mention.crossed
        and closed
        and said.is_only(mention)
        and _IS_LABELLED.match(before)
    ):
        return "statement"
    if closed and (_NOT_BUT.search(before) or (labelled and said.multiple and lead.has(_NAMES))):
        return "statement"
    first = _ALONE.fullmatch(said.lowered, 0, mention.start) is not None
    if mention.text and said.options.none in mention.options and lead.has(_NAMES) and _NONE_HOLDS.match(tail):
        return "leading option" if first else "statement"
    first = first or (_CLOSES.match(tail) is not None and _WITHIN.fullmatch(said.lowered, 0, mention.start) is not None)
    if first and closed and not (listing and said.begins_line(mention)) and _leads(said, at, tail):
        return "statement" if said.text.startswith("A:") else "leading option"  # "A:" may also mean "Answer:"
    ends = (_ENDS_LINE if mention.letter else _CLOSES).match(tail)
    if not first and ends and _ALONE.fullmatch(said.before(mention.start)) and not _in_list(said, at, listing):
        return "last line"
    if not said.lettered and closed and lead.has(_NAMES):
        return "statement"
    own = mention.text and (said.multiple or not mention.letter)
    if own and _seen(said, mention, lead, tail, closed) and _stands_alone(said, at):
        return "option seen"
    return None


_UNTICKED = re.compile(r"(?:\[\s*\]|[☐✗❌✘×])\W{0,4}$")
_POINTS_TO_OPTION = re.compile(
    rf"^(?!.*\b(?:not|no|less|nor|neither)\b).*(?:\b(?:is|are)|{_SHOWN})\s+{_NOUN}\s*\W?$", re.DOTALL
)


_ITEM_NUMBER = re.compile(r"(?:^|\n)\W*\d{1,2}[.)]\s")


def _is_number_of_item(said: PlainResponse, mention: Mention, tail: str) -> bool:
    """True if a number only counts the items of a list ("2. Then I compare")."""
    numeric = mention.text and not mention.letter and not said.options.numeric.isdisjoint(mention.options)
    if not numeric or re.match(r"[.)]\s+\w", tail) is None or not said.begins_line(mention):
        return False
    return said.lowered[mention.start].isdigit() and len(_ITEM_NUMBER.findall(said.text)) > 1


def _turn(before: str) -> int:
    """Where a sentence turns to what it means ("at first I thought B, but ...")."""
    return max((turn.end() for turn in _BUT.finditer(before)), default=0)


_BUT = re.compile(r"\b(?:but|however|yet)\b")


def _closed(said: PlainResponse, mention: Mention, tail: str) -> bool:
    """True if what a frame names ends here, and does not go on ("A or B", "A-lines")."""
    if said.options.yes_no and not mention.letter and " " not in said.text[mention.start : mention.end]:
        return _ENDS_WORD.match(tail) is not None
    if mention.bracketed and not mention.text and said.text[mention.end - 1] == ")":
        return _OR.match(tail) is None
    ends = _ENDS_LETTER if mention.letter and not mention.text else _ENDS
    return ends.match(tail) is not None


def _agrees(said: PlainResponse, mention: Mention, before: str) -> bool:
    """ "That is right", "it was left", where right and left are options."""
    ways = {"right": ("that is ", "that is quite ", "you are "), "left": ("was ", "were ", "been ")}
    return before.endswith(ways.get(said.lowered[mention.start : mention.end], "?"))


def _noun_end(said: PlainResponse, mention: Mention) -> int:
    """Where a mention ends with the generic noun or the thing counted after it."""
    if said.options.are_sides and mention.text:
        noun = _OF_SIDE.match(said.lowered, mention.end)
        return noun.end() if noun else mention.end
    if mention.text and (noun := _KIND_OF.match(said.lowered, mention.end)) is not None:
        return noun.end()
    if mention.text and mention.start > 0 and not said.options.numeric.isdisjoint(mention.options):
        counted = _MEASURE.match(said.lowered, mention.end)
        return counted.end() if counted else mention.end
    return mention.end


def _leads(said: PlainResponse, at: int, tail: str) -> bool:
    """True if what begins a response is an answer: not the first of a list, an everyday word ("None of ..."), or part of a sentence."""
    mention = said.mentions[at]
    if mention.letter:
        if not mention.text and re.match(r"\.\s[a-z]", said.text[mention.end :]):
            return False  # "E. coli"
        if not mention.text and (told := said.options.told_by(said.text[mention.end :][:70])) is not None:
            return told in mention.options  # "B: right ventricle", where this is what A says
        following = said.mentions[at + 1] if at + 1 < len(said.mentions) else None
        if said.multiple or following is None or not (following.letter and following.text and mention.text):
            return True
        return (
            following.options == mention.options
            or re.search(r"\w{2}", said.text[mention.end : following.start]) is not None
        )
    if said.options.yes_no:
        return True
    if said.lowered[mention.start : mention.end] in COMMON | EVERYDAY:
        return re.match(r"\W*(?:$|\n|[.!])", tail) is not None
    return _LEADS.match(tail) is not None and _stands_alone(said, at)


def _stands_alone(said: PlainResponse, at: int) -> bool:
    """True if the sentence names no other option but as a contrast or a neighbour ("a cyst rather than an abscess")."""
    mention = said.mentions[at]
    start, stop = said.sentence(max(mention.end - 1, 0))
    own = {word for place in mention.options for word in said.options.words[place]}
    adjectives = set((_ADJECTIVES.search(said.before(mention.start)) or [""])[0].split()) - own
    if any(not adjectives.isdisjoint(words) for words in said.options.words):
        return False  # "a calcified nodule", where the options are a nodule and a calcified mass
    for other in said.mentions[at + 1 :]:
        if other.start >= stop:
            break
        contrast = _CONTRAST.search(said.lowered, mention.end, other.start)
        if other.options != mention.options and (not contrast or _Lead(said.lead(other.start)).has(_SEEN)):
            return False
    last = said.mentions[at - 1] if at else None
    if last is None or last.start < start or last.options == mention.options:
        return True
    if said.options.clauses.issuperset(last.options):
        return False
    joined = re.search(
        r"\b(?:and|while|whereas|or)\b|\b(?:is|are|has)\b[^,;]*[,;]", said.lowered[last.end : mention.start]
    )
    return joined is None and not _Lead(said.lead(last.start)).has(_SEEN)


def _in_list(said: PlainResponse, at: int, listing: bool) -> bool:
    """True if a line that is nothing but an option goes on a list, whose item of another option stands on the line above or below."""
    mention = said.mentions[at]
    if said.multiple:
        return listing
    if _OPENS_LIST.search(said.lowered[: mention.start].rstrip(" \n-*•\"'([").rpartition("\n")[2]):
        return True
    for first in (at - 1, at):
        if 0 <= first < len(said.mentions) - 1:
            one, other = said.mentions[first], said.mentions[first + 1]
            same = one.letter == other.letter and one.text == other.text and one.options != other.options
            if same and one.letter and said.begins_line(one) and said.text.count("\n", one.end, other.start) == 1:
                return True
    return False


def _seen(said: PlainResponse, mention: Mention, lead: _Lead, tail: str, closed: bool) -> bool:
    if _agrees(said, mention, lead.text):
        return False
    everyday = (
        not (said.options.are_sides and said.is_only(mention))
        and said.lowered[mention.start : mention.end] in COMMON | EVERYDAY
    )
    if everyday and not _OF_IMAGE.search(lead.text):
        return False
    if lead.has(_NAMES) and (_SEEN_AFTER.match(tail) or (closed and said.options.clauses.issuperset(mention.options))):
        return True
    if not said.options.numeric.isdisjoint(mention.options) and lead.text.endswith(("= ", "=")):
        return closed and not re.search(r"\w", said.text[mention.end :])
    return closed and lead.has(_SEEN)
