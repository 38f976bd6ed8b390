#include "report/grid.h"

#include <doctest/doctest.h>

using namespace lora_bench;

namespace {

Grid filled(int width) {
  Grid grid({{"case", "case"}, {"time", "time us", 0, true}, {"rank", "rank", 2, true}}, width,
            false);
  grid.widen({{"a-case-with-a-name-of-36-characters-"}, {"12.5"}, {"16"}});
  grid.fit();
  return grid;
}

}  // namespace

TEST_CASE("a grid shortens ids, then leaves columns out, and says which") {
  CHECK(filled(0).header() == "case                                  time us  rank\n");
  CHECK(filled(40).line({{"a-case-with-a-name-of-36-characters-"}, {"12.5"}, {"16"}}) ==
        "a-case-with-a-name-of-3..     12.5    16\n");
  CHECK(filled(40).hidden().empty());
  CHECK(filled(34).line({{"short"}, {"12.5"}, {"16"}}) == "short                        12.5\n");
  CHECK(hidden_note(filled(34)) == "hidden: rank (wider terminal)\n");
  CHECK(hidden_note(filled(34), "--columns") == "hidden: rank (wider terminal, or\n--columns)\n");
  CHECK(hidden_note(filled(0)).empty());
}

TEST_CASE("text is wrapped at words behind its indent") {
  CHECK(wrapped("one two three", 9, 2) == "  one two\n  three\n");
  CHECK(wrapped("one two three", 0, 2) == "  one two three\n");
  CHECK(wrapped("unbreakable", 6, 0) == "unbr..\n");
}

TEST_CASE("a meaning that does not fit goes on in its own column") {
  CHECK(definitions({{"a", "one two three"}, {"long", "x"}}, 16) ==
        "  a     one two\n        three\n  long  x\n");
}
