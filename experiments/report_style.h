// The report's style sheet.
#pragma once

namespace headroom::experiments {

extern const char* const kReportStyle;

}  // namespace headroom::experiments
