#include "gateway/infer_request.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gateway/sequence.hpp"
#include "gateway/text.hpp"
#include "tests/unit/gateway/fake_inference_service.hpp"

namespace troupe::gateway {
namespace {

class InferRequest : public testing::Test {
 protected:
  InferRequest() {
    service_.AddEcho("f", {Spec("x", proto::FP32, {-1, 2}), Spec("s", proto::BYTES, {-1})}, {"y", "t"});
    service_.AddEcho("half", {Spec("x", proto::FP16, {2})}, {"y"});
    service_.AddEcho("one", {Spec("x", proto::INT16, {-1, -1, 3})}, {"y"});
    service_.AddEcho("text", {Spec("x", proto::BYTES, {-1, 1})}, {"y"});
  }

  absl::StatusOr<ParsedInfer> Parse(std::string_view json, std::uint64_t raw = 0,
                                    std::string_view function = "f") {
    return ParseInferRequest(json, **service_.Find(function, ""), service_, raw);
  }
  std::string Error(std::string_view json, std::uint64_t raw = 0, std::string_view function = "f") {
    const auto parsed = Parse(json, raw, function);
    EXPECT_FALSE(parsed.ok()) << json;
    return std::string(Message(parsed.status()));
  }
  static std::string Data(const ParsedInfer& parsed, std::size_t input) {
    const auto bytes = parsed.call.inputs.at(input).data.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  static constexpr std::string_view kString = R"({"name":"s","shape":[1],"datatype":"BYTES","data":["q"]})";
  FakeInferenceService service_;
};

TEST_F(InferRequest, ReadsEverythingOfARequest) {
  const auto parsed = Parse(Cat(
      R"({"id":"4\"2","parameters":{"timeout":1500,"priority":3,"custom":"x","binary_data_output":true},"inputs":[)",
      R"({"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3,4.5]},)", kString,
      R"(],"outputs":[{"name":"t","parameters":{"binary_data":false}},{"name":"y"}],"unknown":[{}]})"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->call.request_id, "4\"2");
  EXPECT_EQ(parsed->call.timeout, std::chrono::microseconds(1500));
  EXPECT_EQ(parsed->call.priority, 3U);
  EXPECT_EQ(parsed->call.outputs, (std::vector<std::string>{"t", "y"}));
  EXPECT_FALSE(parsed->outputs[0].binary);
  EXPECT_TRUE(parsed->outputs[1].binary);
  const float expected[] = {1, 2, 3, 4.5};
  EXPECT_EQ(Data(*parsed, 0), std::string(reinterpret_cast<const char*>(expected), sizeof(expected)));
  EXPECT_EQ(Data(*parsed, 1), std::string("\1\0\0\0q", 5));
}

TEST_F(InferRequest, TheOrderOfMembersDoesNotMatter) {
  const auto parsed =
      Parse(Cat(R"({"inputs":[{"data":[[7,8]],"datatype":"FP32","shape":[1,2],"name":"x"},)", kString, "]}"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  float read[2];
  std::memcpy(read, Data(*parsed, 0).data(), sizeof(read));
  EXPECT_EQ(read[1], 8.0F);
}

TEST_F(InferRequest, BinaryInputsFollowTheJson) {
  const auto parsed =
      Parse(R"({"inputs":[{"name":"s","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}},)"
            R"({"name":"x","shape":[3,2],"datatype":"FP32","parameters":{"binary_data_size":24}}]})",
            29);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->raw_inputs.size(), 2U);
  EXPECT_EQ(parsed->raw_inputs[0].span.size(), 5U);
  EXPECT_EQ(parsed->raw_inputs[1].span.data(), parsed->call.inputs[1].data.bytes().data());
  EXPECT_FALSE(CheckRawInputs(*parsed).ok());  // five zero bytes are not a string
  parsed->raw_inputs[0].span[0] = std::byte{1};
  EXPECT_TRUE(CheckRawInputs(*parsed).ok());
}

TEST_F(InferRequest, ErrorsSayWhatWasExpected) {
  const auto x = [&](std::string_view input) {
    return Error(Cat(R"({"inputs":[)", input, ",", kString, "]}"));
  };
  EXPECT_EQ(x(R"({"name":"z","shape":[1,2],"datatype":"FP32","data":[1,2]})"),
            "function 'f' has no input 'z'; its inputs: x, s");
  EXPECT_EQ(x(R"({"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]})"),
            "input 'x': expected FP32 [-1,2], got FP32 [1,3]");
  EXPECT_EQ(x(R"({"name":"x","shape":[1,2],"datatype":"FP64","data":[1,2]})"),
            "input 'x': expected FP32 [-1,2], got FP64 [1,2]");
  EXPECT_EQ(x(R"({"name":"x","shape":[1,2],"datatype":"FP32"})"),
            "input 'x' has neither \"data\" nor \"binary_data_size\"");
  EXPECT_EQ(
      x(R"({"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2],"parameters":{"binary_data_size":8}})"),
      "input 'x' has both \"data\" and \"binary_data_size\"");
  EXPECT_EQ(x(R"({"name":"s","shape":[1],"datatype":"BYTES","data":["q"]})"), "input 's' is given twice");
  EXPECT_NE(x(R"({"name":"x","shape":[1,2],"datatype":"FLOAT","data":[1,2]})").find("there are BOOL, UINT8"),
            std::string::npos);
  EXPECT_NE(x(R"({"name":"x","shape":[1,-2],"datatype":"FP32","data":[1,2]})")
                .find("\"inputs\"[0].shape: JSON: a dimension is negative"),
            std::string::npos);
  EXPECT_NE(x(R"({"name":"x","shape":[1,9223372036854775808],"datatype":"FP32","data":[1]})")
                .find("larger than any"),
            std::string::npos);
  EXPECT_EQ(Error(Cat(R"({"inputs":[)", kString, "]}")),
            "input 'x' is missing: function 'f' takes FP32 [-1,2]");
  EXPECT_EQ(Error("{}"), "\"inputs\" is missing from the request");
  EXPECT_EQ(Error(""), "JSON: object expected at byte 0");
  EXPECT_EQ(Error("[]"), "JSON: object expected, found an array at byte 0");
}

TEST_F(InferRequest, NullStandsForAMemberThatIsAbsent) {
  const std::string inputs =
      Cat(R"("inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":null,"data":[1,2]},)",
          kString, "]");
  const auto parsed = Parse(
      Cat(R"({"id":null,"parameters":null,)", inputs, R"(,"outputs":[{"name":"y","parameters":null}]})"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->outputs.size(), 1u);
  EXPECT_TRUE(Parse(Cat("{", inputs, R"(,"outputs":null})")).ok());
  EXPECT_TRUE(Parse(Cat("{", inputs, R"(,"parameters":{"timeout":null,"binary_data_output":null}})")).ok());
  EXPECT_EQ(Error(R"({"inputs":null})"), "\"inputs\": JSON: array expected, found null at byte 10");
}

TEST_F(InferRequest, AWordThatIsNoneOfJsonIsNamed) {
  const auto data = [&](std::string_view element) {
    return Error(Cat(R"({"inputs":[)", kString, R"(,{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,)",
                     element, "]}]}"));
  };
  EXPECT_THAT(data("nan"),
              testing::HasSubstr("number, NaN, Infinity or -Infinity expected, found 'nan' at byte"));
  EXPECT_THAT(data("None"), testing::HasSubstr("found 'None'"));
  EXPECT_THAT(data("null"), testing::HasSubstr("found null"));
  EXPECT_THAT(data("true"), testing::HasSubstr("found a boolean"));
}

TEST_F(InferRequest, AnErrorNamesTheMemberAndWhatWasExpected) {
  const auto x = [&](std::string_view member) {
    return Error(Cat(R"({"inputs":[)", kString, R"(,{"name":"x",)", member, "}]}"));
  };
  EXPECT_TRUE(
      x(R"("datatype":7)").starts_with("\"inputs\"[1].datatype: JSON: string expected, found a number"))
      << x(R"("datatype":7)");
  EXPECT_TRUE(x(R"("shape":["1"])").starts_with("\"inputs\"[1].shape: JSON: number expected, found text"))
      << x(R"("shape":["1"])");
  const auto text = x(R"("shape":[1,2],"datatype":"FP32","data":[1,"2"])");
  EXPECT_TRUE(text.starts_with("input 'x': JSON: number expected, found text")) << text;
  EXPECT_TRUE(Error(R"({"parameters":{"timeout":"1"}})")
                  .starts_with("\"parameters\".timeout: JSON: number expected, found text"));
}

TEST_F(InferRequest, NamesTheSequenceThatItBelongsTo) {
  const std::string inputs =
      Cat(R"("inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]},)", kString, "]");
  const auto parse = [&](std::string_view parameters) {
    return Parse(Cat("{", inputs, R"(,"parameters":{)", parameters, "}}"));
  };
  const auto sequence = [&](std::string_view parameters) {
    const auto parsed = parse(parameters);
    EXPECT_TRUE(parsed.ok()) << parameters << parsed.status();
    return parsed.ok() ? parsed->call.sequence : Sequence();
  };
  EXPECT_EQ(sequence(R"("sequence_id":7)"), (Sequence{"7"}));
  EXPECT_EQ(sequence(R"("sequence_id":18446744073709551615)"), (Sequence{"18446744073709551615"}));
  EXPECT_EQ(sequence(R"("sequence_end":false,"sequence_start":true,"sequence_id":"a-B_9.x")"),
            (Sequence{"a-B_9.x", true}));
  EXPECT_EQ(sequence(R"("sequence_id":"c","sequence_start":true,"sequence_end":true)"),
            (Sequence{"c", true, true}));
  for (const std::string_view none :
       {R"("sequence_id":0)", R"("sequence_id":"")", R"("sequence_start":false,"sequence_end":false)",
        R"("sequence_id":null)", R"("sequence_other":{"a":[1]})"})
    EXPECT_EQ(sequence(none), Sequence()) << none;
  const std::string longest(64, 'a');
  EXPECT_EQ(sequence(Cat(R"("sequence_id":")", longest, R"(")")).id, longest);
  for (const std::string& bad :
       {Cat(R"("sequence_id":")", longest, R"(a")"), std::string(R"("sequence_id":"a/b")"),
        std::string(R"("sequence_id":"a b")"), std::string(R"("sequence_id":"\u0000")"),
        std::string(R"("sequence_id":"a#b")"), std::string(R"("sequence_id":-1)"),
        std::string(R"("sequence_id":1.5)"), std::string(R"("sequence_id":18446744073709551616)"),
        std::string(R"("sequence_id":{})"), std::string(R"("sequence_id":[7])"),
        std::string(R"("sequence_id":true)"), std::string(R"("sequence_id":7,"sequence_start":1)"),
        std::string(R"("sequence_id":7,"sequence_end":"yes")"),
        std::string(R"("sequence_id":7,"sequence_id":8)")}) {
    EXPECT_EQ(parse(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(SequenceHeader, HasTheIdAndWhatTheRequestIsInIt) {
  const auto read = [](std::string_view header) {
    const auto sequence = ReadSequenceHeader(header);
    EXPECT_TRUE(sequence.ok()) << header << sequence.status();
    return sequence.value_or(Sequence());
  };
  EXPECT_EQ(read(""), Sequence());
  EXPECT_EQ(read("chat-7"), (Sequence{"chat-7"}));
  EXPECT_EQ(read("7; start"), (Sequence{"7", true}));
  EXPECT_EQ(read("7;end"), (Sequence{"7", false, true}));
  EXPECT_EQ(read(" 7 ;\tend ; start "), (Sequence{"7", true, true}));
  for (const std::string_view bad : {";", "; start", "a b", "a,b", "7; begin", "7; start; start", "7;",
                                     "7; start end", "../7", "7=start"}) {
    const auto sequence = ReadSequenceHeader(bad);
    EXPECT_EQ(sequence.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(sequence.status().message().find("Troupe-Sequence"), absl::string_view::npos) << bad;
  }
}

TEST(SequenceHeader, SaysTheSameAsTheJson) {
  const auto joined = [](const Sequence& json, const Sequence& header) {
    return JoinSequences(json, header).value_or(Sequence{"refused"});
  };
  EXPECT_EQ(joined({}, {}), Sequence());
  EXPECT_EQ(joined({"7", true}, {}), (Sequence{"7", true}));
  EXPECT_EQ(joined({}, {"7", false, true}), (Sequence{"7", false, true}));
  EXPECT_EQ(joined({"7", true}, {"7", true}), (Sequence{"7", true}));
  for (const auto& [json, header] : std::vector<std::pair<Sequence, Sequence>>{{{"7"}, {"8"}},
                                                                               {{"7", true}, {"7"}},
                                                                               {{"7"}, {"7", false, true}},
                                                                               {{"", true}, {}},
                                                                               {{"", false, true}, {"7"}}})
    EXPECT_EQ(JoinSequences(json, header).status().code(), absl::StatusCode::kInvalidArgument)
        << json.id << " " << header.id;
  EXPECT_EQ(
      JoinSequences({"7", true}, {"8"}).status().message(),
      "the JSON names the sequence '7' with start, and the header Troupe-Sequence '8'; give one of them");
}

TEST_F(InferRequest, BinarySizesMustAddUp) {
  const auto x = [&](std::uint64_t size, std::uint64_t raw) {
    return Error(
        Cat(R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":)",
            size, "}},", kString, "]}"),
        raw);
  };
  EXPECT_EQ(x(7, 7), "input 'x': \"binary_data_size\" is 7, but FP32 [1,2] has 8 bytes");
  EXPECT_NE(x(8, 0).find("only 0 bytes are left behind the JSON"), std::string::npos);
  EXPECT_NE(x(8, 9).find("1 bytes of the body belong to no input"), std::string::npos);
}

TEST_F(InferRequest, ParametersAndOutputsAreChecked) {
  const std::string inputs =
      Cat(R"("inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]},)", kString, "]");
  for (const std::string_view bad :
       {R"("parameters":{"timeout":-1})", R"("parameters":{"timeout":"1"})",
        R"("parameters":{"priority":4294967296})", R"("parameters":[])", R"("outputs":[{}])",
        R"("outputs":[{"name":"z"}])", R"("outputs":[{"name":"y"},{"name":"y"}])", R"("outputs":{})",
        R"("id":7)", R"("outputs":[{"name":"y","parameters":{"binary_data":1}}])"}) {
    EXPECT_EQ(Parse(Cat("{", inputs, ",", bad, "}")).status().code(), absl::StatusCode::kInvalidArgument)
        << bad;
  }
  EXPECT_EQ(Parse(Cat("{", inputs, R"(,"outputs":[{"name":"y","parameters":{"classification":3}}]})"))
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
  const auto forever = Parse(Cat("{", inputs, R"(,"parameters":{"timeout":18446744073709551615}})"));
  ASSERT_TRUE(forever.ok()) << forever.status();
  EXPECT_GT(forever->call.timeout, std::chrono::hours(24 * 365 * 200));
}

// A member that came first was used already: data before the shape would be read by another shape.
TEST_F(InferRequest, AMemberThatIsGivenTwiceIsRefused) {
  const auto input = [&](std::string_view members, std::uint64_t raw = 0) {
    return Error(Cat(R"({"inputs":[{)", members, "},", kString, "]}"), raw);
  };
  const std::string filled = R"("name":"x","datatype":"FP32","shape":[1,2],"data":[1,2])";
  EXPECT_EQ(input(Cat(filled, R"(,"shape":[5,2])")),
            "\"inputs\"[0].shape: JSON: an input has one \"shape\": send it once, the second is at byte 76");
  for (const std::string_view again :
       {R"("name":"s")", R"("datatype":"INT64")", R"("shape":[1,2])", R"("data":[1,2])"})
    EXPECT_NE(input(Cat(filled, ",", again)).find("send it once"), std::string::npos) << again;
  const std::string raw = R"("name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8)";
  EXPECT_NE(input(Cat(raw, R"(,"binary_data_size":8})"), 8).find("one \"binary_data_size\""),
            std::string::npos);
  EXPECT_NE(input(Cat(raw, R"(},"parameters":{"binary_data_size":8})"), 8).find("one \"parameters\""),
            std::string::npos);

  const std::string inputs = Cat("\"inputs\":[{", filled, "},", kString, "]");
  for (const std::string_view twice :
       {R"("id":"a","id":"a")", R"("outputs":[],"outputs":[])", R"("inputs":[])",
        R"("parameters":{},"parameters":{})", R"("parameters":{"timeout":1,"timeout":1})",
        R"("parameters":{"priority":1,"priority":1})",
        R"("parameters":{"binary_data_output":true,"binary_data_output":true})",
        R"("outputs":[{"name":"y","name":"y"}])",
        R"("outputs":[{"name":"y","parameters":{},"parameters":{}}])",
        R"("outputs":[{"name":"y","parameters":{"binary_data":true,"binary_data":true}}])"}) {
    EXPECT_NE(Error(Cat("{", inputs, ",", twice, "}")).find("send it once"), std::string::npos) << twice;
  }
  EXPECT_TRUE(Parse(Cat("{", inputs, R"(,"unknown":1,"unknown":2})")).ok())
      << "members that the parser does not read may come twice";
}

TEST_F(InferRequest, HalfFloatsAreBinaryBothWays) {
  EXPECT_NE(Error(R"({"inputs":[{"name":"x","shape":[2],"datatype":"FP16","data":[1,2]}]})", 0, "half")
                .find("no JSON form"),
            std::string::npos);
  const std::string input =
      R"({"name":"x","shape":[2],"datatype":"FP16","parameters":{"binary_data_size":4}})";
  EXPECT_NE(Error(Cat(R"({"inputs":[)", input, "]}"), 4, "half").find("ask for it with"), std::string::npos);
  EXPECT_TRUE(
      Parse(Cat(R"({"parameters":{"binary_data_output":true},"inputs":[)", input, "]}"), 4, "half").ok());
}

TEST_F(InferRequest, ABusyServiceIsBusy) {
  service_.RefusePlaces(true);
  EXPECT_EQ(Parse(Cat(R"({"inputs":[)", kString, "]}")).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(InferRequest, NothingReservedIsLeftBehindByAFailure) {
  Error(Cat(R"({"inputs":[)", kString, R"(,{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,"2"]}]})"));
  service_.WaitForPlaces();
}

TEST_F(InferRequest, ARawBodyIsTheOnlyInput) {
  const auto parse = [&](std::string_view function, std::uint64_t size) {
    return ParseRawRequest(**service_.Find(function, ""), service_, size);
  };
  const auto numbers = parse("one", 12);
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_EQ(numbers->call.inputs[0].spec.DebugString(), Spec("x", proto::INT16, {1, 2, 3}).DebugString());
  EXPECT_TRUE(numbers->binary_default);
  EXPECT_EQ(std::string(parse("one", 13).status().message()),
            "input 'x': the body has 13 bytes, and INT16 [1,-1,3] takes a multiple of 6");
  EXPECT_FALSE(parse("f", 8).ok());
  EXPECT_TRUE(parse("half", 4).ok());
  EXPECT_FALSE(parse("half", 6).ok());
  const auto text = parse("text", 3);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->raw_inputs[0].span.size(), 3U);
  EXPECT_EQ(Data(*text, 0).substr(0, 4), std::string("\3\0\0\0", 4));
  EXPECT_TRUE(CheckRawInputs(*text).ok());
  EXPECT_TRUE(parse("text", 0).ok());
}

}  // namespace
}  // namespace troupe::gateway
