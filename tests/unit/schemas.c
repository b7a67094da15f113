/* schemas.c: schemas as other programs write them: texts that fit keywords and texts that do not, messages for what is
   rejected, bounded work. Each line of golden/schemas/pydantic.jsonl (made by make.py beside it) compiles, and random
   texts of all of them are values that Python's jsonschema accepts.
   $EXL2_SCHEMAS names another file of schemas, one per line. Those that do not compile are then counted by their
   reasons, and are no failures. $EXL2_SCHEMA_TEXTS: number of texts for each schema (20). */
#define _GNU_SOURCE /* mkdtemp, getline */
#include "../grammar_rig.h"

#include <time.h>

#define TEXTS 20u
#define TOKENS 160u /* tokens of a text, beyond the fewest possible */

static uint32_t ones(uint32_t x)
{
    x -= x >> 1 & 0x55555555u;
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    return ((x + (x >> 4)) & 0x0F0F0F0Fu) * 0x01010101u >> 24;
}

/* The id of the `pick`-th bit that is set. */
static uint32_t bit_of(const uint32_t *bits, uint32_t pick)
{
    uint32_t id = 0;
    for (; pick >= ones(bits[id / 32]); id += 32) {
        pick -= ones(bits[id / 32]);
    }
    while (!(bits[id / 32] >> id % 32 & 1) || pick-- > 0) {
        id++;
    }
    return id;
}

/* A random text of at most `left` tokens; returns its bytes. */
static size_t walk(exl2__grammar *g, uint32_t left, char *out, size_t room)
{
    exl2__grammar_mask_place place;
    size_t used = 0;
    CHECK(exl2__grammar_mask_join(&context, &g->mask, &place) == EXL2_OK);
    for (;; left--) {
        const uint32_t *bits;
        bool may_end, special;
        uint32_t allowed = 0;
        if (!CHECK(exl2__grammar_mask_get(&context, &g->mask, &place, left, &bits, &may_end) == EXL2_OK)) {
            break;
        }
        for (uint32_t i = 0; i < table.words; i++) {
            allowed += ones(bits[i]);
        }
        if (left == 0 || !allowed || (may_end && random_number(8) == 0)) {
            CHECK(may_end);
            break;
        }
        exl2_token token = (exl2_token)bit_of(bits, random_number(allowed));
        size_t bytes;
        const char *text = exl2__vocab_piece(&vocab, token, &bytes, &special);
        if (!CHECK(exl2__grammar_mask_accept(&context, &g->mask, &place, token, 0) == EXL2_OK)
            || !CHECK(used + bytes < room)) {
            break;
        }
        memcpy(out + used, text, bytes);
        used += bytes;
    }
    exl2__grammar_mask_leave(&g->mask, &place);
    return used;
}

/* Texts for every token limit from the shortest possible text on. */
static void judge_texts(judge *j, exl2__grammar *g, const char *schema, uint32_t texts)
{
    static char text[1 << 18];
    exl2__grammar_mask_place place;
    exl2__grammar_mask_join(&context, &g->mask, &place);
    uint32_t shortest = exl2__grammar_mask_shortest(&g->mask, &place);
    exl2__grammar_mask_leave(&g->mask, &place);
    for (uint32_t k = 0; k < texts; k++) {
        judge_add(j, 's', schema, text, walk(g, shortest + k * TOKENS / texts, text, sizeof text));
    }
}

/* ---- texts ---- */

typedef struct text_case {
    const char *schema, *fit, *unfit; /* texts, one per line */
} text_case;

#define D7 "{'$schema':'http://json-schema.org/draft-07/schema#',"

static const text_case text_cases[] = {
    /* uniqueItems: in the enum a few values in any order; otherwise strings and integers that differ in how they
       begin */
    { "{'items':{'enum':['a','b',3]},'uniqueItems':true}", "[]\n['a']\n[3,'a']\n['b', 'a',3]",
      "['a','a']\n[3,3]\n['a','b',3,'a']" },
    { "{'items':{'type':['boolean','null']},'uniqueItems':true,'minItems':2}", "[true,null]\n[null,false,true]",
      "[]\n[true]\n[true,true]\n[null,null,true]" },
    { "{'items':{'anyOf':[{'const':1},{'enum':[1.0,2,true]}]},'uniqueItems':true,'maxItems':2}", "[2,1]\n[true,2]",
      "[1,1]\n[1,2,true]\n[1,1.0]" },
    { "{'items':{'enum':[1,2,3,4,5,6,7,8]},'uniqueItems':true,'minItems':2,'maxItems':3}", "[1,8]\n[2,3,5]",
      "[1]\n[1,2,3,4]\n[2,2]\n[1,1,3]" },
    { "{'items':{'type':'string'},'uniqueItems':true}", "[]\n['x']\n['Ann','Bob', 'tom']\n['7','\303\251t\303\251']",
      "['a','a']\n['ab','ab','c']\n['b','b']" },
    { "{'items':{'type':'string','minLength':2,'pattern':'^[ab]'},'uniqueItems':true,'minItems':1}",
      "['ax']\n['ab','bc']", "[]\n['a']\n['ab','ab']\n['ab','bb','ba']" },
    { "{'items':{'type':'integer','minimum':-5},'uniqueItems':true}", "[]\n[-5,0,12,3]", "[1,1]\n[-6]\n[12,12]" },
    /* patternProperties, propertyNames */
    { "{'properties':{'x':{'const':1},'xa':{'type':'integer'}},'patternProperties':{'^x':{'maximum':5},'y$':{'type':"
      "'null'}},'additionalProperties':{'type':'boolean'}}",
      "{'x':1,'xa':3}\n{'xb':2,'a':true}\n{'ay':null}\n{}\n{'xa':-1}", "{'xa':6}\n{'xb':true}\n{'a':null}\n{'ay':true}"
      "\n{'xy':1}\n{'x':2}" },
    { "{'patternProperties':{'^[a-c]+$':{'type':'null'}},'additionalProperties':false}", "{}\n{'ab':null}\n{'a':null,"
      "'cc':null}", "{'d':null}\n{'a':1}\n{'':null}" },
    { "{'patternProperties':{'^S_':{'type':'string'}}}", "{'S_x':''}\n{}", "{'S_x':1}\n{'a':1}" },
    { "{'additionalProperties':{'type':'null'},'propertyNames':{'pattern':'^[a-z]+$','maxLength':3}}", "{}\n{'abc':"
      "null,'x':null}", "{'abcd':null}\n{'A':null}\n{'':null}" },
    { "{'propertyNames':{'enum':['a','b']},'additionalProperties':{'type':'null'}}", "{'a':null}\n{'b':null}",
      "{'c':null}" },
    { "{'properties':{'aa':{'type':'null'},'b':{'type':'null'}},'propertyNames':{'minLength':2}}", "{'aa':null}\n{}",
      "{'b':null}" },
    { "{'patternProperties':{'\\\\d':{'type':'null'}},'additionalProperties':{'type':'boolean'}}", "{'a1':null}\n"
      "{'a':true}", "{'a1':true}\n{'\331\241':true}\n{'\331\241':null}" }, /* a digit in Python, not in JavaScript */
    /* counts of members */
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'},'c':{'type':'null'}},'minProperties':2}",
      "{'a':null,'b':null}\n{'a':null,'c':null}\n{'b':null,'c':null}\n{'a':null,'b':null,'c':null}",
      "{}\n{'a':null}\n{'c':null}" },
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'}},'maxProperties':1}", "{}\n{'a':null}\n{'b':null}",
      "{'a':null,'b':null}" },
    { "{'properties':{'a':{'type':'null'}},'additionalProperties':{'type':'boolean'},'minProperties':2,"
      "'maxProperties':3}", "{'a':null,'x':true}\n{'x':true,'y':true}\n{'x':true,'y':true,'z':false}",
      "{'a':null}\n{'x':true}\n{}\n{'a':null,'x':true,'y':true,'z':true}" },
    { "{'required':['a','b'],'minProperties':2}", "{'a':1,'b':2}", "{'a':1}" },
    { "{'type':'object','minProperties':1}", "{'':0}", "{}" },
    /* not */
    { "{'type':'string','not':{'enum':['a','bc']}}", "''\n'b'\n'aa'\n'bcd'", "'a'\n'bc'" },
    { "{'type':['string','null','integer'],'not':{'type':'string'}}", "null\n3", "''\n'a'" },
    { "{'type':'string','not':{'pattern':'^a'}}", "''\n'ba'", "'a'\n'ab'" },
    { "{'type':'string','not':{'const':''}}", "'a'", "''" },
    { "{'type':'integer','not':{'enum':[3,15.0]}}", "4\n33\n5", "3\n15" },
    { "{'type':'number','not':{'const':2.5}}", "2\n2.51\n-2.5", "2.5\n2.50\n2.500" },
    { "{'type':'number','not':{'type':'integer'}}", "0.5\n-3.25", "1\n1.0\n-2.00" },
    { "{'type':'integer','not':{'minimum':3}}", "2\n-5", "3\n10" },
    { "{'enum':['a','b',null],'not':{'const':'a'}}", "'b'\nnull", "'a'" },
    { "{'type':'boolean','not':{'const':false}}", "true", "false" },
    { "{'type':'array','items':{'type':'null'},'not':{'maxItems':1}}", "[null,null]", "[]\n[null]" },
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'}},'not':{'required':['a']}}", "{}\n{'b':null}",
      "{'a':null}" },
    { "{'type':'object','required':['k'],'properties':{'k':{'enum':['x','y']}},'not':{'properties':{'k':{'const':'x'"
      "}}}}", "{'k':'y'}", "{'k':'x'}" },
    { "{'type':'string','not':{'anyOf':[{'const':'a'},{'pattern':'b'},{'not':{'maxLength':3}}]}}", "''\n'cc'",
      "'a'\n'ab'\n'cccc'" },
    { "{'not':{'type':['object','array','number','boolean','null']}}", "''\n'a'", "1\nnull\n{}\n[]\ntrue" },
    /* oneOf, with branches that can be told apart */
    { "{'oneOf':[{'type':'integer','minimum':0,'maximum':5},{'type':'integer','minimum':3,'maximum':9}]}",
      "0\n2\n6\n9", "3\n4\n5\n-1\n10" },
    { "{'oneOf':[{'type':'number','exclusiveMinimum':0,'maximum':5},{'type':'number','minimum':2.5,'maximum':9}]}",
      "0.5\n2.49\n5.01\n9\n9.0", "0\n2.5\n3\n5\n5.0\n9.1" },
    { "{'oneOf':[{'type':'number','minimum':0,'maximum':10},{'type':'number','minimum':3,'maximum':4},{'type':'number',"
      "'minimum':6,'maximum':20}]}", "0\n2.9\n4.1\n5.99\n10.5\n20", "3\n3.5\n4\n6\n10\n-1\n21" },
    { "{'oneOf':[{'type':'number','multipleOf':3},{'type':'number','multipleOf':5}]}", "3\n5\n-9\n10\n18",
      "0\n15\n30\n1\n7" },
    { "{'oneOf':[{'type':'number','minimum':0,'maximum':2},{'type':'number','multipleOf':0.5,'minimum':0,"
      "'maximum':2}]}",
      "0.1\n0.3\n1.75\n1.05", "0\n0.5\n1\n1.0\n1.50\n2\n2.5" },
    { "{'oneOf':[{'type':'number','minimum':5},{'type':'integer','minimum':5}]}", "5.5\n6.25\n1000.5",
      "5\n5.0\n6\n4.5\n4\n-5.5" },
    { "{'oneOf':[{'type':'integer','maximum':-5},{'type':'number','maximum':-5}]}", "-5.5\n-1000.25",
      "-5\n-6\n-4.5\n-4\n5.5" },
    { "{'oneOf':[{'type':'number','minimum':5},{'type':'integer','minimum':3}]}", "5.5\n3\n4\n7.25",
      "5\n6\n3.5\n2\n4.5" },
    { "{'oneOf':[{'type':'number','minimum':0,'maximum':9},{'type':'integer','minimum':0,'maximum':9}]}",
      "0.5\n8.99\n3.25", "0\n9\n5\n5.0\n9.5\n-0.5" },
    { "{'oneOf':[{'type':'number'},{'type':'integer'}]}", "0.5\n-3.25", "0\n5\n-7\n5.0" },
    { "{'oneOf':[{'type':'number','minimum':0},{'type':'number','minimum':0,'multipleOf':0.5}]}", "0.25\n7.1",
      "0\n0.5\n7.50\n-0.25" },
    { "{'anyOf':[{'type':'number','multipleOf':3,'minimum':4,'maximum':5},{'type':'string','pattern':'[^\\\\s\\\\S]',"
      "'maxLength':9},{'const':true}]}", "true", "4\n3\n''\n'a'" },
    { "{'type':'integer','not':{'minimum':3,'maximum':7}}", "2\n8\n-5\n100", "3\n5\n7" },
    { "{'type':'number','not':{'multipleOf':0.5}}", "0.1\n2.25\n-3.75", "0\n0.5\n1\n-2.50" },
    { "{'type':'integer','not':{'multipleOf':2}}", "1\n-7\n33", "0\n2\n-14" },
    { "{'oneOf':[{'minimum':1},{'type':'integer'}]}", "1.5\n0\n-3", "1\n2\n0.5\n'a'" },
    { "{'type':'object','properties':{'a':{'type':'null'},'b':{'type':'null'}},'oneOf':[{'required':['a']},{"
      "'required':['b']}]}", "{'a':null}\n{'b':null}", "{}\n{'a':null,'b':null}" },
    { "{'oneOf':[{'type':'string','enum':['a','b']},{'type':'string','maxLength':2}]}", "'c'\n''\n'ab'",
      "'a'\n'b'\n'abc'" },
    { "{'oneOf':[{'enum':[1,2]},{'enum':[2,3]}]}", "1\n3", "2\n4" },
    { "{'oneOf':[{'type':'string'},{'minimum':1}]}", "2", "'a'\n0" }, /* any string fits the second branch, too */
    { "{'oneOf':[{'type':'object','properties':{'k':{'const':'a'},'n':{'type':'null'}},'required':['k','n'],"
      "'additionalProperties':false},{'type':'object','properties':{'k':{'type':'string'}},'required':['k'],"
      "'additionalProperties':false}]}", "{'k':'a','n':null}\n{'k':'x'}\n{'k':'a'}", "{'k':'x','n':null}" },
    /* multipleOf */
    { "{'type':'integer','multipleOf':7}", "0\n7\n-14\n98", "1\n8\n-15\n99" },
    { "{'multipleOf':25,'minimum':0,'maximum':100}", "0\n25\n50\n75\n100", "10\n125\n-25\n05" },
    { "{'type':'integer','allOf':[{'multipleOf':4},{'multipleOf':6}],'exclusiveMaximum':36}", "12\n24\n0\n-12",
      "4\n6\n36\n8" },
    { "{'type':'integer','multipleOf':1000}", "0\n1000\n-25000\n99000", "100\n500\n1001" },
    { "{'type':'integer','multipleOf':100000}", "0\n-100000\n1200000", "10000\n100\n100001\n5" },
    { "{'type':'number','multipleOf':1e6,'minimum':5e5,'maximum':3e6}", "1000000\n3000000", "0\n500000\n4000000\n1" },
    { "{'type':'number','multipleOf':0.01}", "0\n0.5\n0.25\n-12.3\n1234567890123.45", "0.001\n0.005\n1.234" },
    { "{'type':'number','multipleOf':0.01,'minimum':0.005,'exclusiveMaximum':0.03}", "0.01\n0.02",
      "0\n0.00\n0.03\n0.005\n0.015\n1" },
    { "{'type':'number','minimum':0,'maximum':50,'multipleOf':0.01}", "0\n0.01\n49.99\n50\n50.0\n7.5",
      "50.01\n-0.01\n51\n0.001" },
    { "{'type':'number','multipleOf':0.25}", "0\n0.25\n0.5\n0.50\n-3.75\n123456789.25", "0.2\n0.1\n0.3\n1.05\n0.255" },
    { "{'type':'number','multipleOf':0.5,'exclusiveMinimum':-1,'maximum':1}", "-0.5\n0\n0.5\n1\n1.0",
      "-1\n1.5\n0.25\n0.05" },
    { "{'type':'number','multipleOf':0.3}", "0\n0.3\n0.6\n3\n-1.2\n3.0\n99.9", "0.1\n0.31\n1\n2.5\n0.4" },
    { "{'type':'number','multipleOf':2.5,'minimum':-10,'maximum':10}", "0\n2.5\n5\n-7.5\n10", "1\n2\n12.5\n0.5" },
    { "{'type':'number','multipleOf':1e-3}", "0.001\n5.125\n7", "0.0001\n5.1255" },
    { "{'type':'number','multipleOf':0.125}", "0.125\n-2.875\n3.5\n4", "0.1\n0.12\n0.126\n1.1" },
    { "{'type':'number','multipleOf':0.07,'minimum':0}", "0\n0.07\n0.7\n7\n1.61", "0.08\n0.1\n1\n0.75" },
    { "{'type':'integer','multipleOf':1.5}", "0\n3\n-6\n300", "1\n2\n4" },
    { "{'type':'integer','multipleOf':0.01}", "0\n3\n-17", "0.5\n1.25" },
    { "{'type':'number','multipleOf':2.0}", "0\n2\n-14", "1\n2.5" },
    { "{'type':'number','allOf':[{'multipleOf':0.5},{'multipleOf':0.75}]}", "1.5\n3\n-4.5", "0.5\n0.75\n1" },
    { "{'enum':[0.25,0.3,1,1.5,-2.75,0],'multipleOf':0.25}", "0.25\n1\n1.5\n-2.75\n0", "0.3" },
    { "{'const':1e3,'multipleOf':0.001}", "1e3", "1000.5" },
    /* formats */
    { "{'format':'ipv4'}", "'127.0.0.1'\n'255.255.255.255'", "'256.0.0.1'\n'1.2.3'\n'01.2.3.4'" },
    { "{'format':'ipv6'}", "'::1'\n'::'\n'fe80::1'\n'1:2:3:4:5:6:7:8'\n'1:2::'", "'1:2:3:4:5:6:7:8:9'\n':::'\n'1::2::3'"
      "\n'g::'" },
    { "{'format':'uri'}", "'https://example.org'\n'http://a.b:80/c/d?e=f#g'\n'urn:isbn:1'", "'example.org'\n'/a'\n'h t"
      "tp://x'\n'http://'" },
    { "{'format':'uri-reference'}", "''\n'/a/b'\n'#x'\n'https://a.b/'\n'c?d'", "'a b'\n'\\\\\\\\'" },
    { "{'format':'hostname'}", "'a'\n'www.example-site.org'", "'-a'\n'a..b'\n'a-'\n'a_b'" },
    { "{'format':'duration'}", "'P1D'\n'PT5M'\n'P1Y2M3DT4H5M6S'\n'P2W'", "'P'\n'PT'\n'1D'\n'P1W2D'\n'P1D1Y'" },
    { "{'format':'json-pointer'}", "''\n'/a/~0b'", "'a'\n'/~2'" },
    { "{'format':'color-of-the-day','type':'string','contentEncoding':'base16'}", "'anything'", "1" },
    /* lengths together with patterns and formats */
    { "{'pattern':'^[a-z]+(-[a-z]+)*$','minLength':3,'maxLength':5}", "'abc'\n'ab-cd'\n'a-b-c'", "'ab'\n'abc-de'\n'a-'"
      "\n'-ab'" },
    { "{'pattern':'\303\251','maxLength':2}", "'\303\251'\n'a\303\251'\n'\303\251\303\251'", "'aa'\n'a\303\251a'" },
    { "{'pattern':'x','minLength':4}", "'axbc'\n'xxxxxxxx'", "'x'\n'xbc'\n'abcd'" },
    { "{'allOf':[{'pattern':'^a'},{'pattern':'z$'},{'minLength':2}]}", "'az'\n'abcz'", "'a'\n'z'\n'ab'\n'bz'" },
    { "{'pattern':'^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$'}", "'1'\n'-0.5'\n'.5'\n'5.'", "''\n'.'\n'-'\n'+.'" },
    { "{'pattern':'^(?=.*[0-9])(?!x|yy)[a-z0-9]{2,4}$'}", "'a1'\n'y1'\n'12'", "'ab'\n'x1'\n'yy1'\n'1'" },
    { "{'format':'uri','minLength':1,'maxLength':65536}", "'https://example.org/a'", "'a'\n''" },
    /* prefixItems */
    { "{'prefixItems':[{'type':'integer'},{'type':'string'}],'minItems':2,'maxItems':2}", "[1,'a']",
      "[1]\n[]\n['a',1]\n[1,'a',1]" },
    { "{'prefixItems':[{'type':'integer'}],'items':{'type':'null'}}", "[]\n[1]\n[1,null,null]", "[null]\n[1,2]" },
    { "{'prefixItems':[{'type':'integer'}]}", "[]\n[1]", "['a']\n[1,2]" },
    { D7 "'items':[{'type':'integer'},{'type':'null'}],'additionalItems':{'type':'boolean'},'minItems':1}",
      "[1]\n[1,null]\n[1,null,true,false]", "[]\n[1,true]\n[1,null,1]" },
    { D7 "'items':[{'type':'integer'},{'type':'null'}],'additionalItems':false}", "[]\n[1,null]", "[1,null,1]" },
    { "{'prefixItems':[{},false]}", "[]\n[1]", "[1,2]" },
    { "{'type':'array','prefixItems':[{'type':'null'}],'minItems':3}", "[null,1,'a']", "[null]\n[null,1]" },
    /* OpenAPI and draft 4 */
    { "{'type':'string','nullable':true,'maxLength':1}", "null\n'a'", "1" },
    { "{'$schema':'http://json-schema.org/draft-04/schema#','id':'http://a/b','type':'integer','minimum':3,"
      "'exclusiveMinimum':true,'maximum':5,'exclusiveMaximum':false}", "4\n5", "3\n6" },
    /* $ref: any path, an anchor, an $id */
    { "{'properties':{'a':{'type':'null'},'b':{'$ref':'#/properties/a'}}}", "{'a':null,'b':null}", "{'b':1}" },
    { "{'$ref':'#n','$defs':{'x':{'$anchor':'n','type':'null'}}}", "null", "1" },
    { D7 "'$ref':'#n','definitions':{'x':{'$id':'#n','type':'null'}}}", "null", "1" },
    { "{'$id':'http://a.b/c/root.json','$ref':'part.json','$defs':{'x':{'$id':'part.json','type':'array','items':{"
      "'$ref':'#/$defs/y'},'$defs':{'y':{'type':'null'}}},'y':{'type':'string'}}}", "[null]", "['a']\nnull" },
    { "{'$id':'http://a.b/root.json','items':{'$ref':'http://a.b/root.json#/$defs/n'},'$defs':{'n':{'type':'null'}}}",
      "[null]", "[1]" },
    { "{'$id':'http://a.b/root.json','items':{'$ref':'root.json#/$defs/n'},'$defs':{'n':{'type':'null'}}}", "[null]",
      "[1]" },
    /* constants together with other keywords */
    { "{'enum':['a','abc','B1',1,20,null],'maxLength':2,'pattern':'[a-z]','maximum':10}", "'a'\n1\nnull",
      "'abc'\n'B1'\n20" },
    { "{'enum':[1,2,3,4,6],'multipleOf':2,'exclusiveMinimum':2}", "4\n6", "2\n3\n1" },
    /* unevaluatedProperties, dependencies that are already decided, keywords without a meaning */
    { "{'allOf':[{'properties':{'a':{'type':'null'}}}],'properties':{'b':{'type':'null'}},'unevaluatedProperties':"
      "false}", "{'b':null,'a':null}\n{}", "{'c':1}" },
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'}},'required':['a','b'],'dependentRequired':{'b':['a']},"
      "'dependencies':{'z':['y']}}", "{'a':null,'b':null}", "{'a':null}" },
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'}},'dependentRequired':{'a':['b']}}",
      "{}\n{'b':null}\n{'a':null,'b':null}", "{'a':null}" },
    { "{'properties':{'b':{'type':'null'},'a':{'type':'null'}},'dependentRequired':{'a':['b']}}",
      "{}\n{'b':null}\n{'b':null,'a':null}", "{'a':null}" },
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'},'c':{'type':'null'}},'dependentRequired':{'a':['c'],"
      "'c':['a']}}", "{}\n{'b':null}\n{'a':null,'c':null}\n{'a':null,'b':null,'c':null}",
      "{'a':null}\n{'c':null}\n{'a':null,'b':null}\n{'b':null,'c':null}" },
    { "{'properties':{'c':{'type':'null'},'a':{'type':'null'},'d':{'type':'null'},'b':{'type':'null'}},"
      "'dependentRequired':{'a':['b'],'b':['c'],'d':['a']}}", /* d needs a, b and c */
      "{}\n{'c':null}\n{'c':null,'b':null}\n{'c':null,'a':null,'b':null}\n{'c':null,'a':null,'d':null,'b':null}",
      "{'a':null,'b':null}\n{'b':null}\n{'d':null}\n{'c':null,'d':null}\n{'c':null,'a':null}\n{'c':null,'d':null,"
      "'b':null}" },
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'},'c':{'type':'null'},'d':{'type':'null'}},"
      "'dependentRequired':{'a':['b','c'],'d':['b']},'minProperties':2,'maxProperties':3}",
      "{'b':null,'c':null}\n{'a':null,'b':null,'c':null}\n{'b':null,'c':null,'d':null}\n{'b':null,'d':null}",
      "{}\n{'b':null}\n{'a':null,'b':null}\n{'c':null,'d':null}\n{'a':null,'b':null,'c':null,'d':null}" },
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'}},'required':['a'],'dependentRequired':{'a':['b']}}",
      "{'a':null,'b':null}", "{'a':null}\n{'b':null}\n{}" },
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'}},'dependentRequired':{'a':['n']}}", /* n: any value */
      "{}\n{'b':null}\n{'a':null,'n':3}\n{'a':null,'b':null,'n':[]}", "{'a':null}\n{'a':null,'b':null}" },
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'}},'dependentRequired':{'a':['n'],'b':['a']},"
      "'additionalProperties':false}", "{}", "{'a':null}\n{'b':null}\n{'a':null,'b':null}\n{'a':null,'n':1}" },
    { "{'properties':{'a':{'type':'null'}},'dependentRequired':{'x':['a'],'a':['y']},'additionalProperties':{'type':"
      "'boolean'}}", "{}\n{'q':true}\n{'a':null,'y':true}\n{'a':null,'x':true,'y':false}\n{'y':true,'q':true}",
      "{'x':true}\n{'a':null}\n{'a':null,'x':true}\n{'y':1}\n{'q':true,'x':true}\n{'y':true,'y':true}" },
    { "{'type':'object','dependentRequired':{'a':['b']}}", "{}\n{'q':1}\n{'a':1,'b':2}\n{'b':2,'z':3}",
      "{'a':1}\n{'a':1,'z':2}\n{'z':1,'a':1}" },
    { D7 "'properties':{'a':{'type':'null'},'b':{'type':'null'}},'dependencies':{'b':['a']}}",
      "{}\n{'a':null}\n{'a':null,'b':null}", "{'b':null}" },
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'}},'dependentRequired':{'a':['b'],'b':[],'a2':['a']},"
      "'not':{'required':['b']}}", "{}", "{'a':null}\n{'b':null}\n{'a':null,'b':null}" },
    { "{'properties':{'a':{'type':'null'},'b':{'type':'null'}},'allOf':[{'dependentRequired':{'a':['b']}},{"
      "'dependentRequired':{'b':['a']}}],'minProperties':1}", "{'a':null,'b':null}", "{}\n{'a':null}\n{'b':null}" },
    { "{'type':'null','x-order':1,'tsType':'A','discriminator':{'propertyName':'k'},'contentMediaType':'a/b','if':{},"
      "'markdownDescription':'','minContains':2}", "null", "1" },
    /* without a type: the keywords apply to values of their own type only */
    { "{'maxLength':1}", "'a'", "'ab'\n1" },
    { "{'type':['integer','string'],'maxLength':1}", "'a'\n12", "'ab'" },
};

/* Schemas and texts are written with ' in place of ". */
static char *quoted(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    if (!copy) {
        exit(1);
    }
    memcpy(copy, text, bytes);
    for (char *c = copy; *c; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    return copy;
}

/* The wrappers of chat APIs: the schema in them counts, and its references begin there. */
static void check_wrappers(void)
{
    static const char inner[] = "{'properties':{'a':{'$ref':'#/$defs/x'}},'required':['a'],'$defs':{'x':{'const':1}}}";
    static const char *const wrappers[] = { "{'name':'x','strict':true,'schema':%s}",
                                            "{'type':'json_schema','json_schema':{'name':'x','schema':%s}}" };
    for (size_t i = 0; i < EXL2__COUNT(wrappers); i++) {
        char source[300];
        exl2__grammar g;
        snprintf(source, sizeof source, wrappers[i], inner);
        char *schema = quoted(source), *fit = quoted("{'a':1}"), *unfit = quoted("{}\n1\n{'a':2}\nnull");
        if (CHECK(exl2__grammar_open(&context, EXL2_GRAMMAR_JSON_SCHEMA, false, schema, strlen(schema), &table, 0, &g)
                  == EXL2_OK)) {
            check_lines(&g, schema, fit, true);
            check_lines(&g, schema, unfit, false);
            exl2__grammar_close(&context, &g);
        }
        free(schema);
        free(fit);
        free(unfit);
    }
}

static void check_texts(judge *j)
{
    for (size_t i = 0; i < EXL2__COUNT(text_cases); i++) {
        char *schema = quoted(text_cases[i].schema), *fit = quoted(text_cases[i].fit);
        char *unfit = quoted(text_cases[i].unfit);
        exl2__grammar g;
        exl2_result result = exl2__grammar_open(&context, EXL2_GRAMMAR_JSON_SCHEMA, false, schema, strlen(schema),
                                                &table, 0, &g);
        if (!CHECK(result == EXL2_OK)) {
            printf("  %s: %s\n", schema, context.error.text);
        } else {
            check_lines(&g, schema, fit, true);
            check_lines(&g, schema, unfit, false);
            judge_texts(j, &g, schema, 40);
            for (const char *line = fit; *line;) { /* jsonschema must agree on these, too */
                size_t bytes = strcspn(line, "\n");
                judge_add(j, 's', schema, line, bytes);
                line += bytes + (line[bytes] == '\n');
            }
            exl2__grammar_close(&context, &g);
        }
        free(schema);
        free(fit);
        free(unfit);
    }
}

/* ---- rejected schemas ---- */

static void check_refusal(const char *source, bool strict, exl2_result wanted, const char *sentence)
{
    exl2__grammar g;
    char *schema = quoted(source);
    uint64_t before = context.host_bytes;
    context.error.text[0] = 0;
    exl2_result result = exl2__grammar_open(&context, EXL2_GRAMMAR_JSON_SCHEMA, strict, schema, strlen(schema),
                                               &table, 0, &g);
    if (!CHECK(result == wanted && (result == EXL2_OK || strstr(context.error.text, sentence)))) {
        printf("  %.200s: %d %s\n", schema, (int)result, context.error.text);
    }
    exl2__grammar_close(&context, &g);
    CHECK_INT(context.host_bytes, before);
    free(schema);
}

/* Subschemas within each other, `count` of them: each is `wrap`, whose % is the next one; the innermost one is
   `inside`. The texts are made in the same way. */
static char *nest(const char *wrap, uint32_t count, const char *inside)
{
    size_t front = strcspn(wrap, "%"), back = strlen(wrap) - front - 1;
    char *out = malloc((front + back) * count + strlen(inside) + 1), *at = out;
    if (!out) {
        exit(1);
    }
    for (uint32_t i = 0; i < count; i++, at += front) {
        memcpy(at, wrap, front);
    }
    at += sprintf(at, "%s", inside);
    for (uint32_t i = 0; i < count; i++, at += back) {
        memcpy(at, wrap + front + 1, back);
    }
    *at = 0;
    return out;
}

/* Values deep within each other. Where a schema has more levels than are read, one sentence says so. */
static void check_deep(judge *j)
{
    static const struct { uint32_t count; const char *schema, *fit, *unfit; } cases[] = {
        { 40, "{\"type\":\"object\",\"properties\":{\"a\":%},\"required\":[\"a\"]}", "{\"a\":%}", "[%]" },
        { 100, "{\"type\":\"object\",\"properties\":{\"a\":%},\"required\":[\"a\"]}", "{\"a\":%}", "[%]" },
        { 80, "{\"properties\":{\"a\":{\"type\":\"array\",\"items\":%}}}", "{\"a\":[%]}", "{\"a\":%}" },
        { 60, "{\"properties\":{\"a\":{\"anyOf\":[{\"type\":\"null\"},%]},\"b\":{\"type\":\"null\"}},"
          "\"minProperties\":1}", "{\"a\":%}", "{\"b\":%}" },
        { 200, "{\"type\":\"array\",\"items\":%}", "[%]", "{%}" },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        char *schema = nest(cases[i].schema, cases[i].count, "{\"const\":7}");
        char *fit = nest(cases[i].fit, cases[i].count, "7"), *other = nest(cases[i].fit, cases[i].count, "8");
        char *unfit = nest(cases[i].unfit, cases[i].count, "7");
        exl2__grammar g;
        exl2_result result = exl2__grammar_open(&context, EXL2_GRAMMAR_JSON_SCHEMA, false, schema, strlen(schema),
                                                &table, 0, &g);
        if (CHECK(result == EXL2_OK)) {
            check_lines(&g, schema, fit, true);
            check_lines(&g, schema, unfit, false);
            check_lines(&g, schema, other, false);
            judge_add(j, 's', schema, fit, strlen(fit));
            judge_texts(j, &g, schema, 5);
            exl2__grammar_close(&context, &g);
        } else {
            printf("  case %zu: %s\n", i, context.error.text);
        }
        free(schema);
        free(fit);
        free(other);
        free(unfit);
    }
    static const struct { uint32_t count; const char *wrap, *sentence; exl2_result result; } refused[] = {
        { 256, "{'items':%}", "schema is not valid JSON: expected at most 256 levels of nesting at byte",
          EXL2_ERR_FORMAT },
        { 90000, "{'items':%}", "expected at most 256 levels of nesting at byte 2304", EXL2_ERR_FORMAT },
        { 120, "{'allOf':[%],'required':['a']}", "at most 64 subschemas that must hold together", EXL2_ERR_BUDGET },
        { 60, "{'not':%}", "", EXL2_OK },
        { 255, "{'not':%}", "at most 64 subschemas that must hold together", EXL2_ERR_BUDGET },
    };
    for (size_t i = 0; i < EXL2__COUNT(refused); i++) {
        char *schema = nest(refused[i].wrap, refused[i].count, "{'type':'null'}");
        check_refusal(schema, false, refused[i].result, refused[i].sentence);
        free(schema);
    }
}

static void check_refusals(void)
{
    static const exl2_result not_there = EXL2_ERR_UNSUPPORTED, wrong = EXL2_ERR_FORMAT;
    const struct { const char *schema; exl2_result result; const char *sentence; } cases[] = {
        { "{'if':{},'then':{'type':'null'}}", not_there,
          "line 1, column 3, #/if: the keyword is not supported; found: if" },
        { "{'properties':{'a':{'contains':{}}}}", not_there, "column 22, #/properties/a/contains: the keyword is not" },
        { "{'dependentSchemas':{}}", not_there, "the keyword is not supported; found: dependentSchemas" },
        { "{'$dynamicRef':'#a'}", not_there, "the keyword is not supported; found: $dynamicRef" },
        { "{'unevaluatedItems':false}", not_there, "the keyword is not supported; found: unevaluatedItems" },
        { "{'requird':['a']}", not_there, "#/requird: the keyword is unknown, and one letter away from required;" },
        { "{'minlength':3,'maxLenght':2}", not_there, "one letter away from minLength; found: minlength" },
        { "{'$ref':'other.json'}", not_there, "a $ref to another document is not supported; found: other.json" },
        { "{'$ref':'http://a/b#/c'}", not_there, "a $ref to another document" },
        { "{'$ref':'#nowhere'}", wrong, "does not exist; found: #nowhere" },
        { "{'oneOf':[{'type':'string','format':'date'},{'type':'string','format':'email'}]}", not_there,
          "#/oneOf/1: the other branches of oneOf cannot exclude the values of this one; found: {\"type\":" },
        { "{'oneOf':[{'type':'number','minimum':0},{'type':'number','minimum':0,'multipleOf':1e6}]}", not_there,
          "#/oneOf/1: the other branches of oneOf cannot exclude the values of this one; found: {\"type\":" },
        { "{'oneOf':[{'type':'number','minimum':0},{'type':'number','minimum':0,'not':{'const':5}}]}", not_there,
          "#/oneOf/1: the other branches of oneOf cannot exclude" },
        { "{'oneOf':[{'type':'integer','minimum':0},{'type':'integer','minimum':0,'anyOf':[{'maximum':3},{'minimum':9}]"
          "}]}", not_there, "#/oneOf/1: the other branches of oneOf cannot exclude" },
        { "{'oneOf':[{'type':'string','minLength':2},{'type':'string','minLength':2,'not':{'const':'ab'}}]}",
          not_there, "#/oneOf/1: the other branches of oneOf cannot exclude" },
        { "{'oneOf':[{'type':'array','minItems':1},{'type':'array','minItems':1,'items':{'type':'null'}}]}",
          not_there, "#/oneOf/1: the other branches of oneOf cannot exclude" },
        { "{'type':'object','required':['a'],'oneOf':[{'required':['a']},{'required':['a'],'minProperties':3}]}",
          not_there, "the other branches of oneOf cannot exclude" },
        { "{'oneOf':[{'type':'integer','minimum':3},{'type':'integer','minimum':3}]}", wrong, "no text matches" },
        { "{'oneOf':[{'type':'string','minLength':2},{'type':'string','minLength':2}]}", wrong, "no text matches" },
        { "{'required':['a'],'oneOf':[{'maxProperties':3},{'maxProperties':3}]}", wrong, "no text matches" },
        { "{'type':'array','not':{'items':{'type':'null'}}}", not_there,
          "#/not: `not` cannot exclude the values of this subschema; found: {\"items\"" },
        { "{'type':'string','not':{'format':'date'}}", not_there, "`not` cannot exclude" },
        { "{'multipleOf':1001}", not_there, "must be up to 1,000, such a number divided by up to 10^15" },
        { "{'multipleOf':0.12345}", not_there, "must be up to 1,000" },
        { "{'multipleOf':1e-16}", not_there, "must be up to 1,000" },
        { "{'allOf':[{'multipleOf':999},{'multipleOf':1000}]}", not_there, "the least common multiple of several" },
        { "{'multipleOf':0}", wrong, "multipleOf must be a number above 0; found: 0" },
        { "{'multipleOf':-0.5}", wrong, "multipleOf must be a number above 0" },
        { "{'multipleOf':'1'}", wrong, "multipleOf must be a number above 0" },
        { "{'items':{'type':'object'},'uniqueItems':true}", not_there, "uniqueItems is supported only for" },
        { "{'items':{'enum':[1,2]},'uniqueItems':true,'minItems':3}", wrong, "no text matches" },
        { "{'format':'date','maxLength':9}", wrong, "no text matches" },
        { "{'properties':{'a':{},'b':{}},'dependencies':{'a':{'required':['b']}}}", not_there,
          "#/dependencies/a: a subschema that applies only where a member is present is not supported; found: a" },
        { "{'properties':{'a':{},'b':{}},'dependentRequired':{'a':[3]}}", wrong,
          "#/dependentRequired/a/0: the value of this member must be a list of strings; found: 3" },
        { "{'properties':{'a':{}},'dependentRequired':['a']}", wrong, "the value of this keyword must be an object" },
        { "{'allOf':[{'properties':{'a':{}}},{'unevaluatedProperties':false}]}", not_there,
          "does not see all subschemas" },
        { "{'propertyNames':{'anyOf':[{'const':'a'},{'const':'b'}]}}", not_there,
          "propertyNames with anyOf or oneOf is not supported" },
        { "{'not':{}}", wrong, "no text matches" },
        { "{'enum':[[1],[2]],'items':{'minimum':2}}", not_there, "#/enum/0: the constant cannot be checked" },
        { "{'patternProperties':{'a(':{}}}", wrong, "schema: patternProperties line 1, column 3" },
        { "{'type':'object','required':['a'],'maxProperties':0}", wrong, "no text matches" },
        { "{'type':'string','nullable':true,'requires':3}", not_there, "one letter away" },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        check_refusal(cases[i].schema, false, cases[i].result, cases[i].sentence);
    }
    static const struct { const char *schema, *sentence; } strict[] = { /* accepted, but not if strict */
        { "{'type':'string','x-unit':'m'}", "the keyword is not supported; found: x-unit" },
        { "{'type':'string','format':'binary'}", "the format is not supported; found: binary" },
        { "{'type':'string','contentEncoding':'base64'}", "the keyword is not supported; found: contentEncoding" },
        { "{'type':'object','discriminator':{}}", "the keyword is not supported; found: discriminator" },
        { "{'type':'string','then':{}}", "the keyword is not supported; found: then" },
        { "{'properties':{'a':{'markdownDescription':''}}}", "#/properties/a/markdownDescription: the keyword is not" },
    };
    for (size_t i = 0; i < EXL2__COUNT(strict); i++) {
        check_refusal(strict[i].schema, false, EXL2_OK, "");
        check_refusal(strict[i].schema, true, EXL2_ERR_UNSUPPORTED, strict[i].sentence);
    }
    static char many[6000]; /* 1,024 constants, and null, which is in no place of the source */
    int used = snprintf(many, sizeof many, "{'uniqueItems':true,'type':'array','items':{'anyOf':[{'enum':[0");
    for (int i = 1; i < 1024; i++) {
        used += snprintf(many + used, sizeof many - (size_t)used, ",%d", i);
    }
    snprintf(many + used, sizeof many - (size_t)used, "]},{'type':'null'}]}}");
    check_refusal(many, false, EXL2_ERR_BUDGET, "#/uniqueItems: uniqueItems of more than 1,024 possible values");
    check_refusal("{'$schema':'a','$id':'b','title':'','description':'','default':1,'examples':[],'$comment':'',"
                  "'id':'','readOnly':true,'writeOnly':false,'deprecated':true,'$defs':{},'definitions':{},'type':"
                  "'string',"
                  "'format':'date','uniqueItems':true,'minimum':1}", true, EXL2_OK, "");
}

/* ---- work ---- */

/* Many expressions that are each expensive to intersect: the work for all of them together is bounded, and so is the
   work for one. */
static void check_work(void)
{
    static char schema[200000];
    size_t used = (size_t)snprintf(schema, sizeof schema, "{'properties':{");
    for (uint32_t i = 0; i < 1500; i++) { /* no text fits both, and finding that out costs a thousand states */
        used += (size_t)snprintf(schema + used, sizeof schema - used,
                                 "%s'p%u':{'allOf':[{'pattern':'^a{900}b{0,9}$'},{'pattern':'^a{901}c$'}],'maxLength':"
                                 "%u}", i ? "," : "", i, 1000 + i);
    }
    snprintf(schema + used, sizeof schema - used, "}}");
    check_refusal(schema, false, EXL2_ERR_BUDGET, "expressions that must hold together have too many states");
    check_refusal("{'pattern':'^(a|b)*a(a|b){20}$','minLength':3}", false, EXL2_ERR_BUDGET, "too");
    used = (size_t)snprintf(schema, sizeof schema, "{'properties':{");
    for (uint32_t i = 0; i < 300; i++) {
        used += (size_t)snprintf(schema + used, sizeof schema - used, "%s'p%u':{'type':'null'}", i ? "," : "", i);
    }
    snprintf(schema + used, sizeof schema - used, "},'minProperties':299}");
    check_refusal(schema, false, EXL2_ERR_BUDGET, "counts above 256");
}

#define GRAPH_KEYS 6u

/* Random dependencies among a few members, some of them required: the grammar accepts those subsets of the members, in
   order, in which every member has what it needs, and no others. */
static void check_graphs(void)
{
    for (uint32_t round = 0; round < 80; round++) {
        char schema[1024], *quotes;
        uint32_t needs[GRAPH_KEYS] = { 0 }, required = 0, accepted = 0;
        size_t used = (size_t)snprintf(schema, sizeof schema, "{'properties':{");
        for (uint32_t i = 0; i < GRAPH_KEYS; i++) {
            used += (size_t)snprintf(schema + used, sizeof schema - used, "%s'%u':{'type':'null'}", i ? "," : "", i);
        }
        used += (size_t)snprintf(schema + used, sizeof schema - used, "},'dependentRequired':{");
        for (uint32_t i = 0; i < GRAPH_KEYS; i++) {
            used += (size_t)snprintf(schema + used, sizeof schema - used, "%s'%u':[", i ? "," : "", i);
            for (uint32_t k = 0; k < GRAPH_KEYS; k++) {
                if (random_number(GRAPH_KEYS) == 0) {
                    used += (size_t)snprintf(schema + used, sizeof schema - used, "%s'%u'", needs[i] ? "," : "", k);
                    needs[i] |= 1u << k;
                }
            }
            used += (size_t)snprintf(schema + used, sizeof schema - used, "]");
        }
        used += (size_t)snprintf(schema + used, sizeof schema - used, "},'required':[");
        if (random_number(3) == 0) {
            uint32_t key = random_number(GRAPH_KEYS);
            used += (size_t)snprintf(schema + used, sizeof schema - used, "'%u'", key);
            required = 1u << key;
        }
        snprintf(schema + used, sizeof schema - used, "]}");
        quotes = quoted(schema);
        exl2__grammar g;
        if (!CHECK(exl2__grammar_open(&context, EXL2_GRAMMAR_JSON_SCHEMA, false, quotes, strlen(quotes), &table, 0, &g)
                   == EXL2_OK)) {
            printf("  %s: %s\n", quotes, context.error.text);
            free(quotes);
            continue;
        }
        for (uint32_t set = 0; set < 1u << GRAPH_KEYS; set++) {
            char text[256] = "{";
            bool wanted = (set & required) == required;
            for (uint32_t i = 0; i < GRAPH_KEYS; i++) {
                if (set >> i & 1) {
                    size_t bytes = strlen(text);
                    snprintf(text + bytes, sizeof text - bytes, "%s\"%u\":null", bytes > 1 ? "," : "", i);
                    wanted = wanted && (set & needs[i]) == needs[i];
                }
            }
            strcat(text, "}");
            accepted += wanted;
            check_lines(&g, quotes, text, wanted);
        }
        CHECK(accepted > 0); /* all members together always fit */
        exl2__grammar_close(&context, &g);
        free(quotes);
    }
}

/* Pairs of members, of which the first needs the second. Side by side they cost little. If the second ones come after
   all first ones, the number of combinations is bounded. */
static void check_dependencies(void)
{
    static char schema[1 << 20];
    for (uint32_t apart = 0; apart < 2; apart++) {
        size_t used = (size_t)snprintf(schema, sizeof schema, "{'properties':{");
        for (uint32_t i = 0; i < 60; i++) {
            uint32_t pair = apart ? i % 30 : i / 2, second = apart ? i >= 30 : i % 2;
            used += (size_t)snprintf(schema + used, sizeof schema - used, "%s'%c%u':{'type':'null'}", i ? "," : "",
                                     second ? 'b' : 'a', pair);
        }
        used += (size_t)snprintf(schema + used, sizeof schema - used, "},'dependentRequired':{");
        for (uint32_t i = 0; i < 30; i++) {
            used += (size_t)snprintf(schema + used, sizeof schema - used, "%s'a%u':['b%u']", i ? "," : "", i, i);
        }
        snprintf(schema + used, sizeof schema - used, "}}");
        check_refusal(schema, false, apart ? EXL2_ERR_BUDGET : EXL2_OK,
                      "schema: at most 1024 combinations of members that depend on each other are supported");
    }
    for (uint32_t many = 0; many < 2; many++) { /* 70 keys, and 60,000 */
        size_t used = (size_t)snprintf(schema, sizeof schema, "{'type':'object','dependentRequired':{");
        for (uint32_t i = 0; i < (many ? 60000 : 70); i++) {
            used += (size_t)snprintf(schema + used, sizeof schema - used, "%s'%u':['x']", i ? "," : "", i);
        }
        snprintf(schema + used, sizeof schema - used, "}}");
        check_refusal(schema, false, EXL2_ERR_BUDGET, many ? "too many members depend on each other"
                      : "schema: at most 64 members of an object may depend on each other");
    }
}

/* ---- files ---- */

static uint32_t number_of(const char *variable, uint32_t otherwise)
{
    const char *text = check_env(variable);
    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static void check_file(const char *path, bool must, uint32_t texts)
{
    judge j = judge_open();
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    uint32_t count = 0, good = 0, nodes = 0;
    double slowest = 0;
    if (!CHECK(file != NULL)) {
        return;
    }
    for (ssize_t bytes; (bytes = getline(&line, &room, file)) > 0; count++) {
        exl2__grammar g;
        line[bytes - 1] = line[bytes - 1] == '\n' ? 0 : line[bytes - 1];
        clock_t start = clock();
        exl2_result result =
            exl2__grammar_open(&context, EXL2_GRAMMAR_JSON_SCHEMA, false, line, strlen(line), &table, 0, &g);
        double ms = (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC;
        slowest = ms > slowest ? ms : slowest;
        if (result < 0) {
            printf("line %u (%.1f ms): %s\n", count + 1, ms, context.error.text);
            CHECK(!must);
            continue;
        }
        good++;
        nodes = g.link.node_count > nodes ? g.link.node_count : nodes;
        if (!must) {
            printf("line %u (%.1f ms): good, %u nodes\n", count + 1, ms, g.link.node_count);
        }
        judge_texts(&j, &g, line, texts);
        exl2__grammar_close(&context, &g);
    }
    printf("%u of %u schemas compile, in %.1f ms at most; the largest has %u nodes\n", good, count, slowest, nodes);
    CHECK(count > 0);
    free(line);
    fclose(file);
    judge_close(&j);
}

int main(void)
{
    const char *other = check_env("EXL2_SCHEMAS");
    context = rows_ctx();
    if (!CHECK(vocab_open(&context, EXL2_GOLDEN_DIR "/smollm2", &vocab) == EXL2_OK)
        || !CHECK(exl2__grammar_vocab_open(&context, &vocab, &table) == EXL2_OK)) {
        return check_done();
    }
    if (!other) {
        judge j = judge_open();
        check_texts(&j);
        check_deep(&j);
        judge_close(&j);
        check_wrappers();
        check_refusals();
        check_work();
        check_graphs();
        check_dependencies();
    }
    check_file(other ? other : EXL2_GOLDEN_DIR "/schemas/pydantic.jsonl", !other,
               number_of("EXL2_SCHEMA_TEXTS", TEXTS));
    exl2__grammar_vocab_close(&context, &table);
    exl2__vocab_close(&context, &vocab);
    CHECK_INT(context.host_bytes, 0);
    return check_done();
}
